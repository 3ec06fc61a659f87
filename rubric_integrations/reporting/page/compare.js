/* Two runs: A and B. Which two are shown, and how their texts differ in words. */
const comparison = $("view-compare");
const runsWithRows = (comparison?.dataset.rows || "").split(",").map(Number);
const pairOf = () => [Number(filters.a), Number(filters.b)];
document.body.classList.toggle("two-runs", two);
/* Shows the chosen pair: its figures, and its rows in the table if the page has them. */
let pairShown = "";
const showPair = () => {
  if (!comparison) return;
  let [a, b] = pairOf();
  if (a > b) { [a, b] = [b, a]; Object.assign(filters, { a: String(a), b: String(b) }); }
  if (pairShown === a + "-" + b) return;
  pairShown = a + "-" + b;
  const sections = [...comparison.querySelectorAll("[data-pair]")];
  for (const section of sections) section.hidden = section.dataset.pair !== pairShown;
  const isShown = sections.some((section) => !section.hidden);
  const names = [a, b].map((run) => $("view-many")?.querySelector(`.pick[data-run="${run}"] .name`)?.textContent);
  $("no-pair").hidden = isShown;
  $("no-pair").textContent = isShown ? "" : a === b ? "Choose two different runs."
    : names[0] + " and " + names[1] + " are not compared on this page: they are of different series, or the page compares each run only with the first one of its series and with the previous one. rubric-integrations report A B compares any two; --anyway also those of different series.";
  const places = [a, b].map((run) => runsWithRows.indexOf(run));
  if (allRuns.length > 2 && !places.includes(-1)) showRuns(places);
  const isCompared = comparison.querySelector(`[data-pair="${shownRuns.map((place) => runsWithRows[place]).join("-")}"]`);
  $("shown-pair").replaceChildren(make("span", { class: "style1" }, "A"), " ", make("b", { class: "r1" }, data.runs[0]), " ", make("span", { class: "style2" }, "B"), " ", make("b", { class: "r2" }, data.runs[1]), isCompared ? "" : " These runs are of different series: what changed may be the rubric or the judge.");
};
if ($("pair")) {
  const choices = [...$("view-many").querySelectorAll(".pick")].map((button) => [button.dataset.run, Number(button.dataset.run) + 1 + ". " + button.querySelector(".name").textContent]);
  $("pair").append(...["a", "b"].map((name) => field(name, name.toUpperCase(), make("select", {}, ...options(choices)))));
  $("pair").addEventListener("submit", (event) => event.preventDefault());
}

/* The words of two lists that the other one does not have (Myers 1986), as two sets of places; null if they are too many
   to find in time. */
const MOST_CHANGES = 2000, MOST_MS = 300;
const differences = (one, other) => {
  let start = 0, end = 0;
  while (start < one.length && start < other.length && one[start] === other[start]) start++;
  while (end < one.length - start && end < other.length - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end++;
  const n = one.length - start - end, m = other.length - start - end;
  const until = performance.now() + MOST_MS;
  const most = Math.min(n + m, MOST_CHANGES);
  let ends = new Int32Array(2 * most + 3);
  const history = [];
  for (let changes = 0; changes <= most; changes++) {
    if (performance.now() > until) return null;
    history.push(ends.slice(most + 1 - changes - 1, most + 1 + changes + 2));
    for (let k = -changes; k <= changes; k += 2) {
      const at = most + 1 + k;
      let x = k === -changes || (k !== changes && ends[at - 1] < ends[at + 1]) ? ends[at + 1] : ends[at - 1] + 1;
      while (x < n && x - k < m && one[start + x] === other[start + x - k]) x++;
      ends[at] = x;
      if (x < n || x - k < m) continue;
      return traced(history, changes, k, n, start);
    }
  }
  return null;
};
/* Goes back from the end of both lists: each step was a word of only one of them. */
const traced = (history, changes, k, n, start) => {
  const removed = new Set(), added = new Set();
  for (let step = changes, diagonal = k; step > 0; step--) {
    const ends = history[step], at = (place) => ends[place + step + 1];
    const isAdded = diagonal === -step || (diagonal !== step && at(diagonal - 1) < at(diagonal + 1));
    const before = isAdded ? diagonal + 1 : diagonal - 1, x = at(before);
    if (isAdded) added.add(start + x - before); else removed.add(start + x);
    diagonal = before;
  }
  return [removed, added];
};

/* The words of an element, each with its text node and its place in it. */
const wordsOf = (element) => {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const words = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    for (const match of node.data.matchAll(/[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu)) words.push({ node, word: match[0], from: match.index, to: match.index + match[0].length });
  }
  return words;
};
/* Marks the words at some places, those that follow each other together. */
const markWords = (words, places, name) => {
  const ranges = new Map();
  words.forEach(({ node, from, to }, place) => {
    if (!places.has(place)) return;
    if (!ranges.has(node)) ranges.set(node, []);
    const of = ranges.get(node), latest = of[of.length - 1];
    if (latest && latest.place === place - 1) Object.assign(latest, { to, place });
    else of.push({ from, to, place });
  });
  for (const [node, of] of ranges) {
    const pieces = [];
    let done = 0;
    for (const { from, to } of of) { pieces.push(node.data.slice(done, from), make(name, {}, node.data.slice(from, to))); done = to; }
    node.replaceWith(...pieces, node.data.slice(done));
  }
};
const MOST_WORDS = 20_000;
const markDifferences = (one, other) => {
  const words = [wordsOf(one), wordsOf(other)];
  const [removed, added] = (Math.max(words[0].length, words[1].length) <= MOST_WORDS && differences(...words.map((list) => list.map(({ word }) => word)))) || [];
  if (!removed) return "The texts differ in too many words to mark them.";
  markWords(words[0], removed, "del");
  markWords(words[1], added, "ins");
  return removed.size || added.size ? number(removed.size, "word") + " only in A, " + number(added.size, "word") + " only in B: underlined." : "The words are the same.";
};
/* How many steps two runs begin with alike. */
const sameSteps = (lists) => { let count = 0; while (count < Math.min(...lists.map((steps) => steps.length)) && JSON.stringify(lists[0][count]) === JSON.stringify(lists[1][count])) count++; return count; };
const differenceOf = (sides, parts) => {
  if (parts.every((sections) => sections.some((section) => section.matches(".turns")))) { const count = sameSteps(sides.map((side) => side.steps || [])); return count ? "The first " + number(count, "step") + (count === 1 ? " is" : " are") + " unchanged." : "Already the first steps differ."; }
  const bodies = parts.map((sections) => sections.map((section) => section.querySelector("[data-text]")).find(Boolean));
  return bodies.every(Boolean) ? markDifferences(...bodies) : "";
};
/* A part of the runs that are shown: once if it is the same in both, else side by side. */
const bothSides = (title, names, texts, isBlind, show) => {
  const runs = texts.sides.flatMap((side, run) => (side ? [run] : []));
  const cited = (places) => (isBlind ? undefined : citedIn(texts, places));
  const [one, other] = texts.sides;
  const isPair = two && one && other;
  if (!isPair || names.every((name) => one[name] === other[name])) return show(title + (isPair ? ", unchanged" : ""), texts, { runs, cited: cited(runs) });
  const parts = texts.sides.map((side, run) => show(title + " of " + "AB"[run] + ", " + data.runs[run], side, { runs: [run], cited: cited([run]), suffix: run ? "" : "a-" }));
  if (!parts.some((sections) => sections.length)) return [];
  return [make("p", { class: "hint" }, differenceOf(texts.sides, parts)), make("div", { class: "sides" }, ...parts.map((sections, run) => make("div", { class: "side" + (run + 1) }, ...sections)))];
};
