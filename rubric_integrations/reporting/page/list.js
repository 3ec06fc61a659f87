/* The list. */
const choices = { text: "", status: "all", criterion: "", answer: "", sort: "order" };
const options = (list) => list.map(([value, text]) => make("option", { value }, text));
const field = (name, text, control) => {
  control.id = "f-" + name;
  control.addEventListener("input", () => { choices[name] = control.value; if (name === "text") search(); else { $("window").scrollTop = 0; showList(); } });
  return make("label", { for: control.id }, text, control);
};
const statuses = [["all", "all"], ["passed", "passed"], ["not", "not passed"], ["failed", "not graded"], ["abstained", "with abstentions"], ["split", "panel disagreed"], ["labelled", "labelled"]];
if (two) statuses.push(["changed", "answers changed"], ["better", "better"], ["worse", "worse"]);
const sorts = [["order", "as in the run"], ["low", "lowest score first"], ["high", "highest score first"], ["id", "id"]];
if (two) sorts.push(["fell", "largest decrease first"], ["rose", "largest increase first"]);
$("filters").append(
  field("text", "search", make("input", { type: "search" })),
  field("status", "show", make("select", {}, ...options(statuses))),
  field("criterion", data.kind === "tags" ? "tag" : "criterion", make("select", {}, ...options([["", "any"], ...data.columns.map(([name], place) => [String(place), name])]))),
  field("answer", "answered", make("select", {}, ...options([["", "in any way"], ["good", "as wanted"], ["part", "partly"], ["bad", "not as wanted"], ["abstained", "could not tell"], ["failed", "judge failed"], ["open", "not requested"], ["inapplicable", "does not apply"]]))),
  field("sort", "sort", make("select", {}, ...options(sorts))),
);
$("filters").addEventListener("submit", (event) => event.preventDefault());

const kinds = ["good", "part", "bad", "abstained", "failed", "open", "inapplicable"];
const kind = (answer) => (answer.state !== "answered" ? answer.state : answer.good === 1 ? "good" : answer.good === 0 ? "bad" : "part");
let matches = null; /* the rows with the searched text; null if there is no such text to search for */
const wanted = (row) => {
  const grade = row.grades[last] || row.grades[0];
  const difference = delta(row);
  const status = {
    all: true, passed: grade?.passed && !grade.error, not: !grade?.passed && !grade?.error, failed: Boolean(grade?.error),
    abstained: row.grades[last]?.counts?.[kinds.indexOf("abstained")], split: row.grades[last]?.split, labelled: store.ofRow(row).length,
    changed: row.changed?.length, better: difference > 1e-9, worse: difference !== null && difference < -1e-9,
  }[choices.status];
  if (!status || (matches && !matches.has(row))) return false;
  if (!choices.answer) return true;
  if (choices.criterion === "") return row.grades[last]?.counts?.[kinds.indexOf(choices.answer)] > 0;
  const answer = valueAt(row, last, Number(choices.criterion));
  return Boolean(answer) && kind(answer) === choices.answer;
};
let searches = 0;
async function search() {
  const number = ++searches;
  const text = choices.text.toLowerCase();
  const found = new Set();
  for (let block = 0; text && block < rowsOfBlock.length; block++) {
    const { rows } = await unpack(packedBlocks[block]);
    if (number !== searches) return; /* the reader went on typing */
    for (const row of rowsOfBlock[block]) {
      const { query, response } = rows[row.at[1]];
      if ([row.id, query, response].some((part) => (part || "").toLowerCase().includes(text))) found.add(row);
    }
    $("count").textContent = "searching: " + found.size + " so far";
  }
  if (number !== searches) return;
  matches = text ? found : null;
  $("window").scrollTop = 0;
  showList();
}
const low = (row) => { const g = row.grades[last]; return g?.score ?? g?.range?.[0] ?? null; };
const order = {
  order: null, id: (a, b) => a.id.localeCompare(b.id, undefined, { numeric: true }),
  low: (a, b) => (low(a) ?? 9) - (low(b) ?? 9), high: (a, b) => (low(b) ?? -9) - (low(a) ?? -9),
  fell: (a, b) => (delta(a) ?? 9) - (delta(b) ?? 9), rose: (a, b) => (delta(b) ?? -9) - (delta(a) ?? -9),
};
let shown = data.rows;


/* Rows that share columns may have further criteria, which only the counts include. */
const hasMore = data.rows.some((row) => row.grades.some((grade) => grade?.counts && (data.kind === "tags" || grade.counts.reduce((a, b) => a + b) > data.columns.length)));
const counted = (grade) => (grade?.counts ? grade.counts[0] + " of " + grade.counts.slice(0, -1).reduce((a, b) => a + b) : "");
const cell = (row, run, place) => {
  const answer = valueAt(row, run, place);
  if (!answer) return make("td");
  const label = labelAt(row, place);
  const look = ["cell", shade(answer), row.changed?.includes(place) ? "changed" : "", label ? "overruled" : ""].join(" ");
  const words = data.columns[place][0] + ": " + inWords(answer) + (!label ? "" : label.verdict === answer.verdict ? ", confirmed" : ", overruled: " + label.verdict);
  return make("td", { title: words }, make("i", { class: look, "aria-hidden": "true" }, glyph(answer)), make("span", { class: "vh" }, inWords(answer)));
};
const line = (row, number) => {
  const grade = row.grades[last] || row.grades[0];
  const difference = delta(row);
  const scores = (two ? row.grades : [grade]).map((g) => make("td", { class: "score" }, scoreText(g)));
  if (two) scores.push(make("td", { class: "score" }, difference === null ? "" : (difference > 0 ? "+" : "") + difference.toFixed(3)));
  const passed = grade.error ? make("td", {}, make("i", { class: "cell failed", "aria-hidden": "true" }, "!"), make("span", { class: "vh" }, "not graded")) : make("td", { class: grade.passed ? "" : "no" }, grade.passed ? "yes" : "no");
  const run = row.grades[last]?.counts ? last : 0;
  return make("tr", { "aria-rowindex": number + 2 }, make("th", { scope: "row", title: titleOf(row) }, make("a", { href: linkOf(row) }, titleOf(row))), ...scores, passed,
    hasMore ? make("td", { class: "score" }, counted(row.grades[run])) : null, ...data.columns.map((_, place) => cell(row, run, place)));
};
const heads = two ? data.runs.map((name, run) => make("th", { scope: "col", class: "score r" + (run + 1) }, name)) : [make("th", { scope: "col", class: "score" }, "score")];
if (two) heads.push(make("th", { scope: "col", class: "score" }, "change"));
const head = make("tr", { "aria-rowindex": 1 }, make("th", { scope: "col" }, "submission"), ...heads, make("th", { scope: "col" }, "passed"), hasMore ? make("th", { scope: "col", class: "score" }, "as wanted") : null,
  ...data.columns.map(([name, requirement]) => make("th", { scope: "col", class: "c", title: requirement || name }, make("span", {}, name))));
const body = make("tbody");
$("heat").replaceChildren(make("caption", { class: "vh" }, "Each submission with its score, and the answer to each criterion"), make("thead", {}, head), body);

/* A long list has only the lines around the visible ones in the document, and empty space in place of the others. */
const FEW = 200, AROUND = 40;
let height = 0, drawn = [0, 0];
const gap = (lines) => { const space = make("tr", { "aria-hidden": "true" }, make("td")); space.firstChild.style.height = lines * height + "px"; return space; };
const draw = (from, to) => {
  const focused = body.contains(document.activeElement) ? document.activeElement.hash : null;
  drawn = [from, to];
  if (data.queue && !$("list").hidden) shown.slice(from, to).forEach(store.see);
  body.replaceChildren(...(from ? [gap(from)] : []), ...shown.slice(from, to).map((row, at) => line(row, from + at)), ...(to < shown.length ? [gap(shown.length - to)] : []));
  if (focused) body.querySelector('a[href="' + focused + '"]')?.focus({ preventScroll: true });
};
const drawVisible = (always) => {
  const first = height ? Math.floor($("window").scrollTop / height) : 0;
  const after = first + Math.ceil($("window").clientHeight / (height || 32));
  if (shown.length <= FEW) { if (always) draw(0, shown.length); return; }
  const isIn = (drawn[0] === 0 || drawn[0] <= first - AROUND / 4) && (drawn[1] >= shown.length || drawn[1] >= after + AROUND / 4);
  if (always || !isIn) draw(Math.max(0, Math.min(first, shown.length) - AROUND), Math.min(shown.length, after + AROUND));
};
$("window").addEventListener("scroll", () => drawVisible(false));
addEventListener("resize", () => drawVisible(false));
function showList() {
  shown = data.rows.filter(wanted);
  if (order[choices.sort]) shown = [...shown].sort(order[choices.sort]);
  $("count").textContent = shown.length + " of " + data.rows.length + " submissions";
  $("window").classList.toggle("long", shown.length > FEW);
  $("heat").setAttribute("aria-rowcount", shown.length + 1);
  if (!height && shown.length && !$("list").hidden) { draw(0, 1); height = body.firstChild.getBoundingClientRect().height; }
  drawVisible(true);
}
