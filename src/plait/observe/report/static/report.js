// Draws the charts from the JSON in #data. Text only ever enters the page through textContent and ECharts' canvas.
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const narrow = () => window.innerWidth < 600;
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim() || color("other");
  const escapeText = (text) => { const node = document.createElement("span"); node.textContent = text; return node.innerHTML; };
  const percent = (share) => Math.round(100 * share) + " %";
  const drawers = [];

  function clock(seconds) {
    const whole = Math.round(seconds), pad = (n) => String(n).padStart(2, "0");
    const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
    return hours ? hours + ":" + pad(minutes) + ":" + pad(whole % 60) : minutes + ":" + pad(whole % 60);
  }

  function duration(seconds) {
    if (seconds < 10) return seconds.toFixed(2) + " s";
    if (seconds < 60) return seconds.toFixed(1) + " s";
    if (seconds < 3600) return Math.floor(seconds / 60) + " min " + Math.round(seconds % 60) + " s";
    return Math.floor(seconds / 3600) + " h " + Math.round(seconds % 3600 / 60) + " min";
  }

  // Ticks at round clock times, about one in 90 pixels.
  function tickInterval(spanSeconds, width) {
    const wanted = spanSeconds / Math.max(2, width / 90);
    return [.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200].find((step) => step >= wanted) || 86400;
  }

  function base() {
    return {
      animation: false, backgroundColor: "transparent", textStyle: { color: color("ink"), fontFamily: getComputedStyle(document.body).fontFamily },
      tooltip: { confine: true, backgroundColor: color("card"), borderColor: color("line"), textStyle: { color: color("ink"), fontSize: 12 } },
    };
  }

  function axis(extra) {
    return Object.assign({
      axisLine: { lineStyle: { color: color("line") } }, axisTick: { show: false }, splitLine: { lineStyle: { color: color("line"), opacity: .6 } },
      axisLabel: { color: color("muted"), fontSize: 11, hideOverlap: true }, nameTextStyle: { color: color("muted"), fontSize: 11 },
    }, extra);
  }

  // Few charts are drawn at once; of many, each when it comes near the view, or before printing. A chart is drawn again when the
  // colour scheme changes, and follows the width of its element.
  const MAX_EAGER_CHARTS = 16;
  const isLazy = data.curves.tasks.length > MAX_EAGER_CHARTS;

  function addChart(element, option, onDraw) {
    let chart = null;
    const draw = () => {
      if (chart) chart.dispose();
      chart = echarts.init(element, null, { renderer: "canvas" });
      chart.setOption(Object.assign(base(), option()));
      if (onDraw) onDraw(chart);
    };
    const drawOnce = () => { if (!chart) draw(); };
    new ResizeObserver(() => chart && chart.resize()).observe(element);
    drawers.push(() => { if (chart) draw(); });
    window.addEventListener("beforeprint", drawOnce);
    if (!isLazy) { drawOnce(); return; }
    const seen = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) { seen.disconnect(); drawOnce(); }
    }, { rootMargin: "400px" });
    seen.observe(element);
  }

  function rewardOption(task) {
    const band = task.warm_start && [[{ xAxis: task.warm_start[0] }, { xAxis: task.warm_start[1] }]];
    return {
      grid: { left: 38, right: 14, top: 14, bottom: 34 },
      tooltip: Object.assign(base().tooltip, { trigger: "axis", formatter: (points) => rewardTip(task, points) }),
      xAxis: axis({ type: "value", min: 0, max: Math.max(1, task.last_step), minInterval: 1, name: "step", nameLocation: "middle", nameGap: 20, splitLine: { show: false } }),
      yAxis: axis({ type: "value", min: data.curves.low, max: data.curves.high }),
      series: [
        { name: "reward", type: "line", data: task.rewards.map((p) => [p[0], p[1]]), symbol: "circle", symbolSize: task.rewards.length > 60 ? 0 : 4,
          showSymbol: task.rewards.length <= 60, lineStyle: { width: 2.5, color: color("accent") }, itemStyle: { color: color("accent") },
          markArea: band ? { silent: true, itemStyle: { color: color("band") }, data: band } : undefined },
        { name: "accuracy", type: "line", data: task.accuracy.map((p) => [p[0], p[1]]), symbol: "diamond", symbolSize: 10, showSymbol: true, z: 3,
          lineStyle: { width: 1.2, type: "dashed", color: color("accuracy") }, itemStyle: { color: color("accuracy") } },
      ],
    };
  }

  function rewardTip(task, points) {
    const step = points[0].value[0], lines = ["step " + step];
    const reward = task.rewards.find((p) => p[0] === step), accuracy = task.accuracy.filter((p) => p[0] === step).pop();
    if (reward && reward[1] !== null) lines.push("reward " + reward[1].toFixed(3) + (reward[2] === null ? "" : " ± " + reward[2].toFixed(3)));
    if (accuracy) lines.push("held-out accuracy " + percent(accuracy[1]) + " of " + accuracy[2] + " questions");
    return lines.join("<br>");
  }

  function drawCurves() {
    const parent = document.getElementById("curves");
    for (const task of data.curves.tasks) {
      const card = document.createElement("div"), title = document.createElement("h3"), plot = document.createElement("div");
      card.className = "curve"; plot.className = "plot"; title.textContent = task.name;
      plot.setAttribute("role", "img"); plot.setAttribute("aria-label", "Reward and held-out accuracy of " + task.name);
      card.append(title, plot); parent.append(card);
      if (task.rewards.length || task.accuracy.length || task.warm_start) addChart(plot, () => rewardOption(task));
      else { plot.className = "empty"; plot.textContent = "No step yet."; }
    }
  }

  const GAP_PATTERN = (() => {
    const tile = document.createElement("canvas"); tile.width = tile.height = 8;
    const pen = tile.getContext("2d"); pen.strokeStyle = "rgba(128,128,128,.55)"; pen.lineWidth = 1.5;
    pen.beginPath(); pen.moveTo(0, 8); pen.lineTo(8, 0); pen.stroke();
    return { image: tile, repeat: "repeat" };
  })();

  function spanRect(params, api, colors) {
    const lane = api.value(0), rows = api.value(5), row = api.value(4);
    const start = api.coord([api.value(2), lane]), end = api.coord([api.value(3), lane]);
    const height = api.size([0, 1])[1] * .72, rowHeight = height / rows;
    const shape = echarts.graphic.clipRectByRect(
      { x: start[0], y: start[1] - height / 2 + row * rowHeight, width: Math.max(1, end[0] - start[0]), height: Math.max(1, rowHeight - (rows > 1 ? .5 : 0)) },
      { x: params.coordSys.x, y: params.coordSys.y, width: params.coordSys.width, height: params.coordSys.height });
    return shape && { type: "rect", shape: shape, style: { fill: colors[api.value(1)] } };
  }

  function timelineOption() {
    const timeline = data.timeline, lanes = timeline.lanes.length, colors = timeline.kinds.map(color);
    const numTasks = timeline.lanes.filter((lane) => !lane.worker).length, labelWidth = narrow() ? 72 : 128;
    return {
      grid: { left: labelWidth + 10, right: 16, top: 8, bottom: 64 },
      tooltip: Object.assign(base().tooltip, { formatter: (p) => p.componentType === "series" ? spanTip(p.value) : "" }),
      xAxis: axis({ type: "value", min: 0, max: timeline.end, interval: tickInterval(timeline.end, plotWidth()), axisLabel: { color: color("muted"), fontSize: 11, hideOverlap: true, formatter: clock } }),
      yAxis: axis({
        type: "value", min: -.5, max: lanes - .5, inverse: true, interval: 1, splitLine: { show: false }, axisLine: { show: false }, axisLabel: { show: false },
      }),
      dataZoom: [
        { type: "slider", xAxisIndex: 0, bottom: 10, height: 22, filterMode: "none", labelFormatter: (value) => clock(value), borderColor: color("line"),
          fillerColor: color("band"), textStyle: { color: color("muted"), fontSize: 11 }, brushSelect: false, showDataShadow: false },
        { type: "inside", xAxisIndex: 0, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: false, preventDefaultMouseMove: false },
      ],
      series: [
        { type: "custom", data: timeline.spans, encode: { x: [2, 3], y: 0 }, renderItem: (params, api) => spanRect(params, api, colors), clip: true,
          markArea: { silent: true, label: { show: false }, itemStyle: { color: GAP_PATTERN }, data: timeline.gaps.map((gap) => [{ xAxis: gap[0] }, { xAxis: gap[1] }]) },
          markLine: numTasks && numTasks < lanes ? { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: color("line"), type: "solid", width: 1 }, data: [{ yAxis: numTasks - .5 }] } : undefined },
        { type: "custom", data: timeline.lanes.map((lane, number) => [number]), encode: { y: 0 }, silent: true, tooltip: { show: false }, clip: false,
          renderItem: (params, api) => laneLabel(params, api, labelWidth) },
      ],
    };
  }

  function plotWidth() { return document.getElementById("timeline").clientWidth - 180; }

  function followZoom(chart) {
    chart.on("datazoom", () => {
      const zoom = chart.getOption().dataZoom[0];
      chart.setOption({ xAxis: { interval: tickInterval((zoom.end - zoom.start) / 100 * data.timeline.end, plotWidth()) } });
    });
  }

  function laneLabel(params, api, width) {
    const lane = data.timeline.lanes[api.value(0)], y = api.coord([0, api.value(0)])[1];
    return { type: "text", style: { text: lane.name, x: params.coordSys.x - 8, y: y, align: "right", verticalAlign: "middle", width: width, overflow: "truncate",
      fill: color(lane.worker ? "muted" : "ink"), font: "12px " + getComputedStyle(document.body).fontFamily } };
  }

  function spanTip(span) {
    const kind = data.timeline.kinds[span[1]].replace(/_/g, " ");
    const lines = ["<b>" + escapeText(data.timeline.lanes[span[0]].name) + "</b>", escapeText(kind) + (span[6] ? ", step " + span[6] : "")];
    lines.push(duration(span[3] - span[2]) + ", from " + clock(span[2]), new Date(span[7] * 1000).toLocaleTimeString());
    return lines.join("<br>");
  }

  function drawTimeline() {
    const element = document.getElementById("timeline-chart"), legend = document.getElementById("phase-legend");
    for (const kind of data.timeline.kinds) {
      const key = document.createElement("span"), entry = document.createElement("span");
      key.className = "key"; key.style.background = "var(--" + kind + ", var(--other))";
      entry.append(key, kind === "busy" ? "worker busy" : kind.replace(/_/g, " "));
      legend.append(entry);
    }
    if (!element) return;
    const lanes = data.timeline.lanes.length;
    element.style.height = (76 + lanes * (lanes > 16 ? 18 : 28)) + "px";
    addChart(element, timelineOption, followZoom);
  }

  function utilisationOption() {
    const styles = ["solid", "dashed", "dotted"], colors = ["busy", "training", "environment", "evaluation", "warm_start", "other"];
    return {
      grid: { left: 44, right: 14, top: 30, bottom: 24 }, legend: { type: "scroll", top: 0, textStyle: { color: color("muted") }, pageTextStyle: { color: color("muted") } },
      tooltip: Object.assign(base().tooltip, { trigger: "axis", renderMode: "richText", valueFormatter: (v) => v === null || v === undefined ? "-" : percent(v),
        axisPointer: { label: { formatter: (p) => clock(p.value) } } }),
      xAxis: axis({ type: "value", min: 0, max: data.timeline.end, interval: tickInterval(data.timeline.end, plotWidth()), splitLine: { show: false }, axisLabel: { color: color("muted"), fontSize: 11, hideOverlap: true, formatter: clock } }),
      yAxis: axis({ type: "value", min: 0, max: 1, interval: .25, axisLabel: { color: color("muted"), fontSize: 11, formatter: percent } }),
      series: data.utilisation.map((worker, number) => ({
        name: worker.worker, type: "line", data: worker.shares, showSymbol: false, connectNulls: false,
        lineStyle: { width: 1.8, color: color(colors[number % 6]), type: styles[Math.floor(number / 6) % 3] }, itemStyle: { color: color(colors[number % 6]) },
      })),
    };
  }

  drawCurves();
  drawTimeline();
  const utilisation = document.getElementById("utilisation-chart");
  if (utilisation && data.utilisation.length) addChart(utilisation, utilisationOption);
  else if (utilisation) utilisation.remove();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawers.forEach((draw) => draw()));
})();
