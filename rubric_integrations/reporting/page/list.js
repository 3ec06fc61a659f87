/* The table: filters, and a list of which only the visible rows are in the document. */
const FILTERS = { text: "", status: "all", criterion: "", answer: "", meta: "", sort: "order", a: $("view-compare")?.dataset.a || "0", b: $("view-compare")?.dataset.b || "0" };
const filters = { ...FILTERS };
const options = (list) => list.map(([value, text]) => make("option", { value }, text));
const controls = {};
const field = (name, text, control) => {
  control.id = "f-" + name;
  controls[name] = control;
  control.addEventListener("input", () => go({ [name]: control.value }, name === "text" && filters.text !== ""));
  return make("label", { for: control.id }, text, control);
};
const statuses = [["all", "all"], ["passed", "passed"], ["not", "not passed"], ["failed", "not graded"], ["abstained", "with answers that could not be judged"], ["split", "panel disagreed"], ["labelled", "labelled"]];
if (data.shares) statuses.push(["flipped", "changed by the weights tried"]);
if (two) statuses.push(["changed", "answers changed"], ["better", "better"], ["worse", "worse"], ["same", "the same score"], ["lost", "criterion lost"], ["gained", "criterion gained"]);
const sorts = [["order", "as in the run"], ["low", "lowest score first"], ["high", "highest score first"], ["id", "id"]];
if (two) sorts.push(["fell", "largest decrease first"], ["rose", "largest increase first"]);
const answers = [["", "in any way"], ["good", "as wanted"], ["missed", "partly or not"], ["part", "partly"], ["bad", "not as wanted"], ["abstained", "could not be judged"], ["failed", "the judge failed"], ["open", "not asked"], ["inapplicable", "does not apply"]];
/* A name of the metadata with few values is a filter. */
const metaValues = new Map();
for (const row of data.rows) for (const [name, value] of Object.entries(row.metadata || {})) {
  if (!metaValues.has(name)) metaValues.set(name, new Map());
  const counts = metaValues.get(name);
  counts.set(value, (counts.get(value) || 0) + 1);
}
const metaOptions = [...metaValues].filter(([, counts]) => counts.size > 1 && counts.size <= 20).flatMap(([name, counts]) => [...counts.keys()].sort().map((value) => [JSON.stringify([name, value]), name + ": " + value]));
$("filters").append(
  field("text", "search", make("input", { type: "search" })),
  field("status", "show", make("select", {}, ...options(statuses))),
  field("criterion", data.kind === "tags" ? "tag" : "criterion", make("select", {}, ...options([["", "any"], ...data.columns.map(([name], place) => [String(place), name])]))),
  field("answer", "answered", make("select", {}, ...options(answers))),
  ...(metaOptions.length ? [field("meta", "where", make("select", {}, ...options([["", "anywhere"], ...metaOptions])))] : []),
  field("sort", "sort", make("select", {}, ...options(sorts))),
);
$("filters").addEventListener("submit", (event) => event.preventDefault());

let matches = null; /* the rows with the searched text; null if there is no such text to search for */
const isAnswered = (kind) => (filters.answer === "missed" ? kind === "bad" || kind === "part" : kind === filters.answer);
/* What changed in a row: whether an answer is better or worse in B, and its mark in A and in B. */
const wentTo = (row, place) => {
  const [one, other] = [0, 1].map((run) => valueAt(row, run, place));
  return one && other && one.state !== "failed" && other.state !== "failed" && one.good !== null && other.good !== null ? Math.sign(other.good - one.good) : 0;
};
const changesOf = (row) => (row.changed || []).filter((place) => place >= 0).map((place) => {
  const [one, other] = [0, 1].map((run) => valueAt(row, run, place)), [name, , weight] = data.columns[place];
  const kind = { "-1": "bad", 1: "good" }[wentTo(row, place)] || "part";
  return { kind, marks: name + " " + glyph(one) + "\u2192" + glyph(other), words: name + " from " + inWords(one, weight) + " to " + inWords(other, weight) };
});
const changeChip = ({ kind, marks, words }) => make("span", { class: "missed " + kind, title: words }, marks);
const went = (row, sign) => (filters.criterion === "" ? data.columns.map((_, place) => place) : [Number(filters.criterion)]).some((place) => wentTo(row, place) === sign);
const wanted = (row) => {
  if (!row.grades.some(Boolean)) return false; /* a row of other runs than the two that are shown */
  const grade = gradeOf(row);
  const difference = delta(row);
  const status = {
    all: true, passed: grade?.passed && !grade.error, not: !grade?.passed && !grade?.error, failed: Boolean(grade?.error),
    abstained: row.grades[last]?.counts?.[KINDS.indexOf("abstained")], split: row.grades[last]?.split, labelled: store.ofRow(row).length, flipped: whatIf?.flips.has(row.number),
    changed: row.changed?.length, better: difference > 1e-9, worse: difference !== null && difference < -1e-9,
    same: difference !== null && Math.abs(difference) <= 1e-9, lost: filters.status === "lost" && went(row, -1), gained: filters.status === "gained" && went(row, 1),
  }[filters.status];
  if (!status || (matches && !matches.has(row))) return false;
  if (filters.meta) {
    const [name, value] = JSON.parse(filters.meta);
    if (row.metadata?.[name] !== value) return false;
  }
  if (!filters.answer) return true;
  if (filters.criterion === "") return KINDS.some((kind, place) => isAnswered(kind) && row.grades[last]?.counts?.[place] > 0);
  const answer = valueAt(row, last, Number(filters.criterion));
  return Boolean(answer) && isAnswered(kindOf(answer));
};
let searches = 0, searched = "";
async function search() {
  const turn = ++searches;
  const text = filters.text.toLowerCase();
  searched = filters.text;
  const hits = new Set();
  for (let block = 0; text && block < rowsOfBlock.length; block++) {
    const { rows } = await unpack(packedBlocks[block]);
    if (turn !== searches) return; /* the reader went on typing */
    for (const row of rowsOfBlock[block]) {
      const { query, response, grades } = rows[row.at[1]];
      if ([row.id, query, response, ...grades.map((grade) => grade?.own?.response)].some((part) => (part || "").toLowerCase().includes(text))) hits.add(row);
    }
    $("count").textContent = "searching: " + hits.size + " so far";
  }
  if (turn !== searches) return;
  matches = text ? hits : null;
  showList();
}
const low = (row) => { const g = row.grades[last]; return g?.score ?? g?.range?.[0] ?? null; };
const order = {
  order: null, id: (a, b) => a.id.localeCompare(b.id, undefined, { numeric: true }),
  low: (a, b) => (low(a) ?? 9) - (low(b) ?? 9), high: (a, b) => (low(b) ?? -9) - (low(a) ?? -9),
  fell: (a, b) => (delta(a) ?? 9) - (delta(b) ?? 9), rose: (a, b) => (delta(b) ?? -9) - (delta(a) ?? -9),
};
let shown = data.rows;

/* More marks do not fit beside the texts: the panel has them all. */
const MARKS = 12;
const MORE = Math.max(0, data.columns.length - MARKS);
const missedOf = (row) => data.columns.flatMap((column, place) => {
  const answer = valueAt(row, last, place);
  return answer && ["bad", "part", "failed"].includes(kindOf(answer)) ? [{ place, name: column[0], weight: column[2], required: column[3], kind: kindOf(answer), sign: glyph(answer) }] : [];
});
const chipOf = ({ place, name, weight, required, kind, sign }) => make("span", { class: "missed " + kind, "data-place": place }, sign + " " + name + (weight === null || weight === undefined ? "" : " " + signed(weight)) + (required ? " \u25cf" : ""));
const bar = (grade) => {
  const box = make("span", { class: "scorebar", "aria-hidden": "true" }, make("span", {}));
  const score = grade?.score ?? grade?.range?.[0];
  if (score !== undefined && score !== null) box.firstChild.style.width = Math.max(0, Math.min(1, score)) * 100 + "%";
  if (grade?.passed && !grade.error) box.classList.add("passed");
  return box;
};
const markAt = (row, place) => {
  const answer = valueAt(row, last, place);
  if (!answer) return make("i", { class: "mark", "aria-hidden": "true" });
  const mark = markOf(answer, (row.changed?.includes(place) ? " changed" : "") + (labelAt(row, place) ? " overruled" : ""));
  mark.dataset.place = place;
  return mark;
};
const lineOf = (row) => {
  const grade = gradeOf(row), missed = missedOf(row), difference = delta(row), changes = changesOf(row);
  const isEqual = difference !== null && Math.abs(difference) <= 1e-9;
  const change = difference === null ? "" : isEqual ? (changes.length ? "0.000" : "unchanged") : (difference > 0 ? "+" : "") + difference.toFixed(3);
  const named = (words, isFailed) => { const some = missed.filter(({ kind }) => (kind === "failed") === isFailed); return some.length ? words + " " + some.map(({ name, required }) => name + (required ? " (required)" : "")).join(", ") : ""; };
  const count = missed.filter(({ kind }) => kind !== "failed").length;
  const words = [titleOf(row) + ": " + resultText(grade), change && (isEqual && !changes.length ? change : "changed by " + change), changes.length && "changed: " + changes.map(({ words }) => words).join(", "), named("missed", false), named("the judge failed on", true), row.response].filter(Boolean).join(". ");
  const marks = make("span", { class: "marks" }, ...data.columns.slice(0, MARKS).map((_, place) => markAt(row, place)), MORE ? make("small", {}, "+" + MORE) : null);
  return make("a", { class: "row" + (grade?.error ? " ungraded" : "") + (two ? " of-pair" : ""), href: linkOf(row), "aria-label": words, onpointerenter: (event) => explain(row, event.currentTarget) },
    make("b", { class: "id" }, titleOf(row)),
    make("span", { class: "texts" }, make("span", { class: "q" }, row.query || ""), changes.length ? make("span", { class: "changes-of" }, ...changes.map(changeChip)) : make("span", { class: "r" }, row.response || "")),
    make("span", { class: "score" }, bar(grade), make("span", { class: "num" }, two ? row.grades.map(scoreText).join(" \u2192 ") : scoreText(grade)), change ? make("small", {}, change) : null),
    marks, make("span", { class: "chips" }, make("span", { class: "names" }, ...missed.slice(0, 6).map(chipOf)), make("small", {}, count || !grade?.error ? (count || "none") + " missed" : "")));
};
/* The answers in words and their reasons. Reasons are in the compressed blocks: they come when the pointer does. */
async function explain(row, link) {
  if (link.dataset.explained) return;
  link.dataset.explained = "yes";
  const { criteria } = await load(row);
  for (const mark of link.querySelectorAll("[data-place]")) {
    const place = Number(mark.dataset.place), column = data.columns[place], [name, , weight] = column;
    const answer = valueAt(row, last, place), label = labelAt(row, place);
    const told = data.kind === "criteria" ? criteria.find((criterion) => isOf(column, criterion.name, criterion.requirement))?.answers[last] : null;
    mark.title = name + ": " + (told?.words || inWords(answer, weight)) + (!label ? "" : label.verdict === answer.verdict ? ", confirmed" : ", overruled: " + label.verdict) + (told?.reason ? ". " + told.reason : "");
  }
}

/* Rows have one height, and those in view are placed in an empty box as high as all of them. */
const drawn = new Map();
let cursor = -1; /* the place in the list where the keyboard is */
const AROUND = 6;
let height = 0;
const drawVisible = () => {
  if (!height || !$("window").clientHeight) return;
  const first = Math.max(0, Math.floor($("window").scrollTop / height) - AROUND);
  const after = Math.min(shown.length, Math.ceil(($("window").scrollTop + $("window").clientHeight) / height) + AROUND);
  for (const [at, item] of drawn) {
    if ((at < first || at >= after) && !item.contains(document.activeElement)) { item.remove(); drawn.delete(at); }
  }
  let next = null;
  for (let at = after - 1; at >= first; at--) next = drawn.get(at) || draw(at, next);
};
/* Adds the row at a place in the list, before the row after it, so that Tab and screen readers go down the list. */
const draw = (at, next = null) => {
  const row = shown[at];
  const item = make("li", { "aria-posinset": at + 1, "aria-setsize": shown.length, "data-row": row.number, class: row.number === opened ? "opened" : "" }, lineOf(row));
  item.style.transform = "translateY(" + at * height + "px)";
  $("rows").insertBefore(item, next || drawn.get(Math.min(...[...drawn.keys()].filter((place) => place > at))) || null);
  drawn.set(at, item);
  if (data.queue) store.see(row);
  return item;
};
const placeOf = (item) => Number(item.getAttribute("aria-posinset")) - 1;
/* The row with the focus, which a changed list keeps it on. */
const focusedRow = () => { const item = document.activeElement?.closest("#rows li"); return item ? data.rows[item.dataset.row] : null; };
const redraw = () => {
  const focused = focusedRow();
  for (const item of drawn.values()) item.remove();
  drawn.clear();
  height = parseFloat(getComputedStyle($("rows")).getPropertyValue("--row")) || 60;
  $("rows").style.height = shown.length * height + "px";
  const at = focused ? shown.indexOf(focused) : -1;
  if (at >= 0 && height) draw(at).firstChild.focus({ preventScroll: true });
  else if (focused) $("submissions").focus({ preventScroll: true });
  drawVisible();
};
/* Marks the row whose submission is open. */
const markOpened = () => { for (const [at, item] of drawn) item.className = shown[at].number === opened ? "opened" : ""; };
$("window").addEventListener("scroll", drawVisible, { passive: true });
$("rows").addEventListener("focusin", (event) => { cursor = placeOf(event.target.closest("li")); });
new ResizeObserver(() => { if (!$("submissions").hidden) redraw(); }).observe($("window"));
function showList() {
  shown = data.rows.filter(wanted);
  if (order[filters.sort]) shown = [...shown].sort(order[filters.sort]);
  $("count").textContent = shown.length.toLocaleString("en") + " of " + number(data.rows.length, "submission");
  redraw();
}
/* Brings a row into view, and the keyboard to it. */
const reveal = (row, focuses) => {
  const at = shown.indexOf(row);
  if (at < 0 || !height) return;
  const top = at * height, box = $("window");
  if (top < box.scrollTop || top + height > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 2;
  drawVisible();
  if (focuses) drawn.get(at)?.firstChild.focus({ preventScroll: true });
};
$("heads").append(...data.columns.slice(0, MARKS).map(([name]) => make("span", {}, make("span", {}, name))), MORE ? make("span", {}, make("span", {}, MORE + " more")) : "");
const lowest = data.rows.filter((row) => low(row) !== null).sort(order.low).slice(0, 5);
$("lowest")?.append(...lowest.map((row) => make("li", {}, lineOf(row))));
