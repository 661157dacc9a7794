"""Strict settings. Importable without torch; every default is the vetted one."""
