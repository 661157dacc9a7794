// Draws the charts from the JSON in #data. Text only ever enters the page through textContent and ECharts' canvas.
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const escapeText = (text) => { const node = document.createElement("span"); node.textContent = text; return node.innerHTML; };
  const percent = (share) => Math.round(100 * share) + " %";
  const SYSTEM_COLORS = ["rollout", "environment", "training", "evaluation", "warm_start", "busy", "other"];
  const KIND_COLORS = ["warm_start", "accuracy", "evaluation", "training", "other", "environment", "rollout"];
  const DASHES = ["solid", "dashed", "dotted"];
  const drawers = [];

  function clock(seconds) {
    if (seconds < 99.5) return (seconds < 10 && seconds % 1 ? seconds.toFixed(1) : Math.round(seconds)) + " s";
    const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
    if (hours < 1) return minutes + " min" + (Math.round(seconds) % 60 ? " " + Math.round(seconds) % 60 + " s" : "");
    if (data.end < 2 * 86400) return hours + " h" + (minutes % 60 ? " " + minutes % 60 + " min" : "");
    if (hours < 24) return hours + " h";
    return Math.floor(hours / 24) + " d" + (hours % 24 ? " " + hours % 24 + " h" : "");
  }

  function tickInterval(width) {
    const wanted = data.end / Math.max(2, width / 90), day = 86400;
    return [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, day, 2 * day, 5 * day, 10 * day, 20 * day].find((step) => step >= wanted) || 50 * day;
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

  function named(text, gap) {
    return { name: text, nameLocation: "middle", nameGap: gap };
  }

  function timeAxis(width) {
    return axis({ type: "value", min: 0, max: data.end, interval: tickInterval(width), splitLine: { show: false }, ...named("simulated time", 24),
      axisLine: { onZero: false, lineStyle: { color: color("line") } },
      axisLabel: { color: color("muted"), fontSize: 11, hideOverlap: true, showMaxLabel: false, formatter: clock } });
  }

  function addChart(element, option) {
    let chart = null;
    const draw = () => {
      if (chart) chart.dispose();
      chart = echarts.init(element, null, { renderer: "canvas" });
      chart.setOption(Object.assign(base(), option()));
    };
    draw();
    new ResizeObserver(() => chart.resize()).observe(element);
    drawers.push(draw);
  }

  const labelWidth = (width) => Math.min(190, Math.round(width * .32));
  const kindColor = (kind) => color(KIND_COLORS[data.kinds.indexOf(kind) % 7]);

  // A row for each task or job, in order of arrival: from when it came to when it began, and from there to its end.
  function spansOption(spans, width, height) {
    const left = labelWidth(width), works = spans.works, row = (height - 44) / Math.max(1, works.length), withNames = row >= 11;
    const isTask = data.noun === "task", wait = color("queued");
    const told = (work) => escapeText(work.name) + "<br>came " + clock(work.arrival) + "<br>" + (isTask ? "first step " : "began ") + (work.start === null ? "-" : clock(work.start)) +
      "<br>end " + (work.end === null ? "-" : clock(work.end)) + "<br>" + work.steps + " steps" + (work.slowdown === null ? "" : ", slowdown " + number(work.slowdown));
    return {
      grid: { left: left, right: 16, top: 4, bottom: 40 },
      tooltip: Object.assign(base().tooltip, { formatter: (p) => told(works[p.value[0]]) }),
      xAxis: timeAxis(width - left - 16),
      yAxis: axis({ type: "value", min: -.5, max: works.length - .5, inverse: true, splitLine: { show: false }, axisLine: { show: false }, axisLabel: { show: false } }),
      series: [{ type: "custom", encode: { x: [1, 2], y: 0 }, clip: false,
        data: works.map((work, index) => [index, work.arrival, work.end === null ? spans.end : work.end]),
        renderItem: (params, api) => {
          const work = works[api.value(0)], end = api.value(2), begin = work.start === null ? end : work.start;
          const x = (time) => api.coord([time, 0])[0], middle = api.coord([0, api.value(0)])[1], thick = Math.max(1, row * .72);
          const rect = (from, to, style) => ({ type: "rect", shape: { x: x(from), y: middle - thick / 2, width: Math.max(.6, x(to) - x(from)), height: thick }, style: style });
          const parts = [rect(work.arrival, begin, isTask ? { fill: kindColor(work.kind), opacity: .4 } : { fill: wait }), rect(begin, end, { fill: kindColor(work.kind) })];
          if (withNames) parts.push({ type: "text", silent: true, style: { text: work.name, x: params.coordSys.x - 8, y: middle, align: "right", verticalAlign: "middle", width: left - 14, overflow: "truncate", fill: color("ink"), font: "11px " + getComputedStyle(document.body).fontFamily } });
          return { type: "group", children: parts };
        } }],
    };
  }

  // A lane for each group of devices; the darker, the busier. Behind the end of its system there is nothing.
  function busyOption(width) {
    const rows = [], last = data.lanes.length - 1;
    data.lanes.forEach((lane, number) => lane.shares.forEach((share, bin) => rows.push([number, bin * lane.bin, Math.min((bin + 1) * lane.bin, lane.end), share])));
    const labels = data.lanes.map((lane) => data.systems.length > 1 ? lane.system + ": " + lane.name : lane.name);
    const fill = color("rollout"), empty = color("soft"), left = labelWidth(width);
    return {
      grid: { left: left, right: 16, top: 6, bottom: 44 },
      tooltip: Object.assign(base().tooltip, { formatter: (p) => escapeText(labels[p.value[0]]) + "<br>" + percent(p.value[3]) + " busy, " + data.lanes[p.value[0]].devices + " devices<br>" + clock(p.value[1]) + " to " + clock(p.value[2]) }),
      xAxis: timeAxis(width - left - 16),
      yAxis: axis({ type: "value", min: -.5, max: last + .5, inverse: true, interval: 1, splitLine: { show: false }, axisLine: { show: false }, axisLabel: { show: false } }),
      series: [
        { type: "custom", data: rows, encode: { x: [1, 2], y: 0 }, clip: true, renderItem: (params, api) => {
          const start = api.coord([api.value(1), api.value(0)]), end = api.coord([api.value(2), api.value(0)]), height = api.size([0, 1])[1] * .8;
          const shape = { x: start[0], y: start[1] - height / 2, width: Math.max(.6, end[0] - start[0] + .3), height: height };
          return { type: "group", children: [{ type: "rect", shape: shape, style: { fill: empty } }, { type: "rect", shape: shape, style: { fill: fill, opacity: Math.min(1, api.value(3)) } }] };
        } },
        { type: "custom", data: labels.map((label, number) => [number]), encode: { y: 0 }, silent: true, tooltip: { show: false }, clip: false, renderItem: (params, api) => ({
          type: "text", style: { text: labels[api.value(0)], x: params.coordSys.x - 8, y: api.coord([0, api.value(0)])[1], align: "right", verticalAlign: "middle", width: left - 14, overflow: "truncate",
            fill: color("ink"), font: "12px " + getComputedStyle(document.body).fontFamily } }) },
      ],
    };
  }

  function lineOption(xAxis, yAxis, lines, format) {
    return {
      grid: { left: 62, right: 14, top: 30, bottom: 46 }, legend: { type: "scroll", top: 0, textStyle: { color: color("muted") }, pageTextStyle: { color: color("muted") } },
      tooltip: Object.assign(base().tooltip, { trigger: "axis", renderMode: "richText", valueFormatter: (v) => v === null || v === undefined ? "-" : format(v) }),
      xAxis: xAxis, yAxis: yAxis,
      series: lines.map((line, number) => ({
        name: line.name, type: "line", data: line.points, showSymbol: line.points.length < 30, symbolSize: 4, step: line.step,
        lineStyle: { width: 1.8, color: color(SYSTEM_COLORS[number % 7]), type: DASHES[Math.floor(number / 7) % 3] }, itemStyle: { color: color(SYSTEM_COLORS[number % 7]) },
      })),
    };
  }

  const number = (value) => value >= 100 ? String(Math.round(value)) : String(Math.round(100 * value) / 100);

  const busy = document.getElementById("busy-chart");
  if (busy) {
    busy.style.height = 54 + data.lanes.length * (data.lanes.length > 24 ? 16 : 26) + "px";
    addChart(busy, () => busyOption(busy.clientWidth));
  }
  data.spans.forEach((spans, index) => {
    const element = document.getElementById("spans-" + index), count = spans.works.length;
    if (!element) return;
    element.style.height = 44 + Math.max(16, Math.min(count * 18, Math.max(240, count * 4))) + "px";
    addChart(element, () => spansOption(spans, element.clientWidth, element.clientHeight));
  });
  data.series.forEach((series, index) => {
    const element = document.getElementById("series-" + index), format = series.is_share ? percent : number;
    const lines = series.lines.map((line) => ({ name: line.system, points: line.points }));
    if (element) addChart(element, () => lineOption(timeAxis(element.clientWidth - 70),
      axis({ type: "value", min: 0, ...named(series.is_share ? "share of caches" : series.unit, 44), axisLabel: { color: color("muted"), fontSize: 11, formatter: format } }), lines, format));
  });
  const slow = document.getElementById("slowdown-chart");
  if (slow) {
    const lines = data.slowdowns.filter((line) => line.values.length).map((line) => ({ name: line.system, points: line.values, step: "end" }));
    addChart(slow, () => lineOption(axis({ type: "value", min: 0, max: 100, splitLine: { show: false }, ...named("share of " + data.noun + "s", 24), axisLabel: { color: color("muted"), fontSize: 11, formatter: "{value} %" } }),
      axis({ type: "value", min: 1, scale: true, ...named("slowdown", 44) }), lines, number));
  }
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawers.forEach((draw) => draw()));
})();
