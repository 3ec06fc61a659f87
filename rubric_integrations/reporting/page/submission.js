/* One submission, in the panel beside the table: why it did not pass, its texts, its answers, and the sum of its score. */
let opened = null; /* the number of the row that the panel shows */
const readsSource = { value: false };
/* A text to read: as Markdown or as its source. `place` names it for the marks of quotations. A long one that `folds` shows
   its beginning. */
const text = (title, words, place = "", folds = false) => {
  if (!words) return [];
  const rendered = markdown(words);
  const isLong = folds && (words.length > MOST_FOLDED || words.split("\n", MOST_LINES + 1).length > MOST_LINES);
  const section = make("section", { class: "text", "aria-label": title });
  const turn = make("button", { type: "button", class: "turn-source", onclick: () => toggleSource() }, "source");
  const unfold = make("button", { type: "button", class: "unfold", onclick: () => fold(!body.classList.contains("folded")) });
  const fold = (isFolded) => {
    body.classList.toggle("folded", isFolded);
    unfold.setAttribute("aria-expanded", String(!isFolded));
    unfold.textContent = isFolded ? "show all" : "show less";
  };
  const body = make("div", { "data-text": place });
  section.read = () => {
    const isSource = !rendered || readsSource.value;
    turn.setAttribute("aria-pressed", String(isSource));
    body.classList.toggle("source", isSource);
    body.classList.toggle("read", !isSource);
    body.replaceChildren(...(isSource ? visible(words) : rendered));
  };
  section.read();
  if (isLong) fold(true);
  section.append(make("h3", {}, title, ...(rendered ? [" ", turn] : [])), body, ...(isLong ? [unfold] : []));
  return [section];
};
const MOST_LINES = 12, MOST_FOLDED = 1000;
const toggleSource = () => {
  readsSource.value = !readsSource.value;
  for (const section of document.querySelectorAll("section.text")) section.read();
  findQuotes(quoted);
};

/* What a judge quotes is marked in the texts. CSS highlights change nothing in the document. */
const QUOTE = /"(?=\S)([^"\n]{4,400})(?<=\S)"|\u201c([^\u201d\n]{4,400})\u201d|`(?=\S)([^`\n]{4,400})(?<=\S)`|(?<!\w)'(?=\S)([^'\n]{4,400})(?<=\S)'(?!\w)/g;
const quotesIn = (reason) => [...(reason || "").slice(0, 5000).matchAll(QUOTE)].slice(0, 20).map((match) => match[1] || match[2] || match[3] || match[4]);
/* What is compared: not white space, the marks of Markdown, quotation marks, and characters that nobody sees. */
const IGNORED = /[\s*_`#>|~\\"'\u201c\u201d\u2018\u2019\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
const lowered = (words) => { const lower = words.toLowerCase(); return lower.length === words.length ? lower : words; };
/* A quotation may leave words out, and may end with a comma that is not in the text. */
const piecesOf = (quote) => quote.split(/\[?(?:\.\.\.|\u2026)\]?/).map((piece) => lowered(piece).replace(IGNORED, "").replace(/[.,;:!?]+$/, "")).filter((piece) => piece.length >= 4);
/* The compared characters of an element, each with its node and its place there. */
const MOST_LETTERS = 300_000;
const lettersOf = (element) => {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const letters = [], places = [];
  for (let node = walker.nextNode(); node && places.length < MOST_LETTERS; node = walker.nextNode()) {
    if (node.parentElement.className === "unseen") continue;
    const words = lowered(node.data).slice(0, MOST_LETTERS);
    for (let at = 0; at < words.length; at++) if (words[at].search(IGNORED) < 0) { letters.push(words[at]); places.push([node, at]); }
  }
  return { letters: letters.join(""), places };
};
let quoted = new Map(); /* the quotations of the submission that is shown, each with its pieces */
/* Marks the quotations in the texts, and returns those that it finds. */
const findQuotes = (quotes) => {
  const ranges = [], found = new Set();
  for (const element of $("one").querySelectorAll("[data-text]")) {
    const { letters, places } = lettersOf(element);
    for (const [quote, pieces] of quotes) {
      const starts = pieces.map((piece) => letters.indexOf(piece));
      if (starts.includes(-1) || !pieces.length) continue;
      found.add(quote);
      starts.forEach((at, which) => {
        const range = new Range(), [end, after] = places[at + pieces[which].length - 1];
        range.setStart(...places[at]);
        range.setEnd(end, after + 1);
        ranges.push(range);
      });
    }
  }
  if (globalThis.Highlight && CSS.highlights) CSS.highlights.set("quotation", new Highlight(...ranges));
  return found;
};
const quotesOf = (texts) => new Map(texts.criteria.flatMap(({ answers }) => answers.flatMap((answer) => quotesIn(answer?.reason))).map((quote) => [quote, piecesOf(quote)]));
/* The quotations that no text has. A word in quotation marks or code is often no quotation, and some are of the rubric. */
const unfound = (quotes, found, texts) => {
  const asked = texts.criteria.map(({ name, requirement }) => lowered(name + " " + requirement).replace(IGNORED, "")).join(" ");
  const isProse = (quote) => quote.trim().split(/\s+/).length >= 5 && !/[[\](){}=<>_]/.test(quote);
  return [...quotes].filter(([quote, pieces]) => !found.has(quote) && pieces.length && isProse(quote) && !pieces.every((piece) => asked.includes(piece))).map(([quote]) => quote);
};

/* A step that an answer cites; without the number of a step that is on the page, it is only text. The step is the one of the
   same panel: a judgment to label may show the same steps, and a panel that is closed is in the document no more. */
const cite = (number, isLinked) => {
  const open = (event) => { const step = event.currentTarget.closest(".parts").querySelectorAll(".steps details")[number - 1]; step.open = true; step.scrollIntoView({ block: "center" }); step.firstChild.focus(); };
  return isLinked ? make("button", { type: "button", class: "chip", onclick: open }, "step " + number) : make("span", { class: "chip" }, "step " + number);
};
const showSteps = (steps) => {
  if (!steps) return [];
  const call = ([name, args, result, failed]) => [make("p", { class: "call" }, make("b", {}, name), failed ? " " : null, failed ? make("span", { class: "tag" }, "error") : null),
    ...[["arguments", args], ["result", result]].filter(([, words]) => words !== null).flatMap(([title, words]) => [make("small", {}, title), make("pre", { tabindex: "0", "aria-label": title }, words)])];
  const items = steps.map(([role, who, words, calls], place) => make("li", {}, make("details", {},
    make("summary", {}, place + 1 + ". " + role + (who ? " " + who : ""), calls.length ? make("small", {}, " calls " + calls.map(([name]) => name).join(", ")) : null, calls.some(([, , , failed]) => failed) ? make("span", { class: "tag" }, "error") : null),
    words ? make("pre", { tabindex: "0" }, words) : null, ...calls.flatMap(call))));
  return [make("h3", {}, "Steps"), make("ol", { class: "steps" }, ...items)];
};
const showFiles = (files) => {
  if (!files) return [];
  const items = files.map(([name, type, size, sha256, url, image], place) => make("li", {}, image ? make("img", { src: image, alt: "attachment " + (place + 1) }) : null,
    make("small", {}, [place + 1 + ". " + (name || "attachment"), type, size === null ? null : size.toLocaleString("en") + " bytes", sha256 && "SHA-256 " + sha256, url].filter(Boolean).join(", "))));
  return [make("h3", {}, "Attachments"), make("ul", { class: "files" }, ...items)];
};
const gradedOf = (texts) => [...text("Task", texts.query, "query", true), ...(responsePair(texts) || text("Response", texts.response, "response"))];
const furtherOf = (texts) => [
  ...text("Thinking", texts.thinking, "thinking"), ...text("Reference", texts.reference, "reference"),
  ...(texts.context || []).flatMap((words, place) => text("Document " + (place + 1), words, "document " + (place + 1))), ...showFiles(texts.files), ...showSteps(texts.steps)];
const textsOf = (texts) => [...gradedOf(texts), ...furtherOf(texts)];

const verdictCell = (answer, weight, steps) => {
  if (!answer) return make("td", {}, "");
  const votes = (answer.more.votes || []).map(([who, verdict, why]) => make("li", {}, who + ": " + (verdict ? inWords({ state: "answered", verdict }, weight) : "failed") + (why ? ", " + why : "")));
  const notes = [];
  if (answer.more.agreement !== undefined && answer.more.agreement !== null) notes.push(Math.round(answer.more.agreement * 100) + " % of the panel agree");
  if (answer.more.confidence !== undefined) notes.push("confidence " + answer.more.confidence.toFixed(2));
  if (answer.more.escalated) notes.push("escalated to the expensive judge");
  if (answer.more.neutralized) notes.push("text that imitates prompt structure was sanitized");
  return make("td", { class: "why" }, markOf(answer), " ", make("b", {}, answer.words || inWords(answer, weight)), " ", answer.reason ? make("span", { class: "reason" }, answer.reason) : null,
    ...(answer.more.evidence || []).flatMap((number) => [" ", cite(number, Boolean(steps?.[number - 1]))]), notes.length ? make("small", {}, " (" + notes.join("; ") + ")") : null, votes.length ? make("ul", { class: "votes" }, ...votes) : null);
};
const pointsCell = (answer) => make("td", { class: "n points" }, answer?.points === undefined || answer.points === null ? "" : String(Math.round(answer.points * 1000) / 1000));
/* From the answers to the score: what they add up to, and what changes the sum afterwards. */
const sumText = (grade) => {
  if (!grade?.sum) return "";
  const [words, after, problem] = grade.sum;
  return problem ? "These points do not add up to the score: " + problem + "." : [words, ...after].join(", ");
};
const verdictTable = (row, texts) => {
  const rows = texts.criteria.map((criterion) => {
    const tags = (criterion.tags || []).flatMap((tag) => [" ", make("span", { class: "tag" }, tag)]);
    const name = make("th", { scope: "row" }, make("span", { class: "key" }, criterion.name), " ", make("small", {}, signed(criterion.weight)), criterion.required ? " " : null, criterion.required ? make("span", { class: "tag" }, "required") : null, ...tags, make("span", { class: "words" }, criterion.requirement));
    return make("tr", {}, name, ...data.runs.flatMap((_, run) => [verdictCell(criterion.answers[run], criterion.weight, texts.grades[run]?.unlinked ? null : texts.steps), pointsCell(criterion.answers[run])]), overrule(row, criterion));
  });
  if (!rows.length) return [];
  const heads = (two ? data.runs : ["answer"]).flatMap((name, run) => [make("th", { scope: "col", class: two ? "r" + (run + 1) : null }, name), make("th", { scope: "col", class: "n" }, "points")]);
  const sums = texts.grades.flatMap((grade) => [make("td", { class: "sum", colspan: "2" }, sumText(grade))]);
  return [make("div", { class: "scroll" }, make("table", { class: "answers-table" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "criterion"), ...heads, make("th", { scope: "col", class: "label" }, "your answer"))),
    make("tbody", {}, ...rows), make("tfoot", {}, make("tr", {}, make("th", { scope: "row" }, "sum"), ...sums, make("td", { class: "label" })))))];
};
const figures = (values) => Object.entries(values).map(([name, value]) => name + " " + (value === null ? "not computed" : value.toFixed(3))).join(", ");
const gradeTexts = (texts) => texts.grades.map((grade, run) => make("p", { class: "grade" }, two ? make("b", { class: "r" + (run + 1) }, data.runs[run] + ": ") : null, make("b", {}, (grade?.why ? scoreText(grade) : resultText(grade)) + "."), grade?.why ? " " + grade.why : "",
  (grade?.penalty ? " " + grade.penalty.toFixed(3) + " deducted for length." : "") + (grade?.metrics ? " Metrics: " + figures(grade.metrics) + "." : "") + (grade?.tags ? " By tag: " + figures(grade.tags) + "." : "") + (grade?.omitted ? " " + grade.omitted.toLocaleString("en") + " characters of the steps were not shown to the judge." : "") + (grade?.error && !grade.why ? " " + grade.error : "") + (grade?.note ? " " + grade.note : "") + (grade?.reason ? " " + grade.reason : "")));
/* The parts of the panel, each made of the row and its texts. */
const SECTIONS = [
  () => (data.redacted ? [make("p", { class: "hint" }, "The texts and the reasons are left out of this page.")] : []),
  (row, texts) => gradeTexts(texts),
  () => [byYou],
  (row, texts) => [make("div", { class: "parts" }, make("div", { class: "graded" }, ...gradedOf(texts)), make("div", { class: "answers-part" }, ...verdictTable(row, texts)), make("div", { class: "further" }, ...furtherOf(texts)))],
];
let openings = 0;
async function showOne(place, focuses = true) {
  const turn = ++openings;
  const row = data.rows[place];
  const texts = await load(row);
  if (turn !== openings) return;
  opened = place;
  const at = shown.indexOf(row);
  const link = (step, name) => { const other = shown[at + step]; return at >= 0 && other ? make("a", { href: linkOf(other), rel: step > 0 ? "next" : "prev" }, name) : null; };
  $("one").replaceChildren(
    make("nav", { class: "turn", "aria-label": "Other submissions" }, link(-1, "Previous"), link(1, "Next"), make("button", { type: "button", class: "widen", onclick: () => widen() }, document.body.classList.contains("wide") ? "Beside the table" : "Whole width"), make("button", { type: "button", class: "overrule", "aria-pressed": String(document.body.classList.contains("overruling")), onclick: () => toggleOverruling() }, "Overrule"), make("button", { type: "button", class: "close", onclick: () => go({ row: null }) }, "Close")),
    make("h2", {}, titleOf(row)), ...SECTIONS.flatMap((section) => section(row, texts)));
  quoted = quotesOf(texts);
  const missing = unfound(quoted, findQuotes(quoted), texts);
  if (missing.length) $("one").append(make("p", { class: "unquoted" }, "In quotation marks in a reason, and not word for word in these texts: " + missing.map((quote) => "\u201c" + quote + "\u201d").join(", ")));
  $("one").hidden = false;
  store.see(row);
  showByYou(row);
  markOpened();
  reveal(row, false);
  $("one").scrollTop = 0;
  if (focuses) $("one").focus({ preventScroll: true });
}
const closeOne = () => {
  openings++; /* a submission that is still being unpacked must not open now */
  const row = data.rows[opened];
  opened = null;
  $("one").hidden = true;
  $("one").replaceChildren();
  markOpened();
  if (row && state.view === "table") reveal(row, true);
};
const widen = () => { document.body.classList.toggle("wide"); if (opened !== null) showOne(opened, false); };
