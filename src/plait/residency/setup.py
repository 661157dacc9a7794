"""How long it takes until groups are on the device. Pure."""

from collections.abc import Collection

from plait.residency.eviction import EvictionOrder
from plait.residency.ledger import ResidencyLedger
from plait.residency.rates import TransferRates
from plait.residency.tier import TIERS, Tier


def estimate_setup_s(
    ledger: ResidencyLedger, rates: TransferRates, order: EvictionOrder, names: Collection[str], now_s: float
) -> float:
    """Seconds to move away what is in the way and has no copy below, and to load what is missing from where it is."""
    missing = {key: num_bytes for name in names for key, num_bytes in ledger.missing(name, Tier.DEVICE).items()}
    load_bytes = dict.fromkeys(TIERS[1:], 0)
    for key, num_bytes in missing.items():
        place = ledger.place(key)
        if place is not None:
            load_bytes[place] += num_bytes
    shortfall = ledger.shortfall(Tier.DEVICE, sum(missing.values()))
    victims = ledger.victims(Tier.DEVICE, shortfall, order, now_s, names) or ()
    offload_bytes = sum(n for key, n in ledger.freed(Tier.DEVICE, victims).items() if ledger.is_last(Tier.DEVICE, key))
    load_s = sum(rates.estimate_s((tier, Tier.DEVICE), num_bytes) for tier, num_bytes in load_bytes.items())
    return load_s + rates.estimate_s((Tier.DEVICE, Tier.HOST), offload_bytes)
