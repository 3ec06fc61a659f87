/* One submission, in the panel beside the table: why it did not pass, its texts, its answers, and the sum of its score. */
let opened = null; /* the number of the row that the panel shows */
/* A text to read: as Markdown or as its source. */
const text = (title, words, place = "", folds = false) => {
  if (!words) return [];
  const body = readable(words, place);
  return [make("section", { class: "text", "aria-label": title }, make("h3", {}, title, ...(body.isMarkdown ? [" ", sourceButton()] : [])), ...(folds ? foldable(body, words) : [body]))];
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
let quotedAt = new Map(); /* where in the document each of them begins */
/* Marks the quotations in the texts, and returns those that it finds. */
const findQuotes = (quotes) => {
  const ranges = [], found = new Set();
  quotedAt = new Map();
  if (!quotes.size) { CSS.highlights?.delete("quotation"); return found; }
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
        if (!quotedAt.has(quote)) quotedAt.set(quote, range);
        ranges.push(range);
      });
    }
  }
  if (globalThis.Highlight && CSS.highlights) CSS.highlights.set("quotation", new Highlight(...ranges));
  for (const button of $("one").querySelectorAll("[data-quote]")) button.hidden = !quotedAt.has(button.dataset.quote) && !quotedSteps.has(button.dataset.quote);
  return found;
};
const showQuote = (quote) => {
  if (!quotedAt.has(quote)) { const [run, number] = quotedSteps.get(quote); listOf($("one"), run)?.reveal(number); findQuotes(quoted); }
  const body = quotedAt.get(quote)?.startContainer.parentElement;
  const folded = body?.closest(".folded");
  if (folded) folded.nextElementSibling.click();
  body?.scrollIntoView({ block: "center" });
};
const quotesOf = (texts) => new Map(texts.criteria.flatMap(({ answers }) => answers.flatMap((answer) => quotesIn(answer?.reason))).map((quote) => [quote, piecesOf(quote)]));
/* The quotations in steps that are not in the document, because their turns or calls are folded: the run and the number. */
let quotedSteps = new Map();
const findInSteps = (quotes, { sides }) => {
  const found = new Map();
  if (quotes.length) sides.forEach((side, run) => (side?.steps || []).forEach(([, , words, calls], at) => {
    const letters = [words, ...calls.flatMap(([, args, result]) => [args, result])].map((part) => lowered(part || "").replace(IGNORED, "")).join("\n");
    for (const [quote, pieces] of quotes) if (!found.has(quote) && pieces.length && pieces.every((piece) => letters.includes(piece))) found.set(quote, [run, at + 1]);
  }));
  return found;
};
/* The quotations that no text has. A word in quotation marks or code is often no quotation, and some are of the rubric. */
const unfound = (quotes, found, texts) => {
  const asked = texts.criteria.map(({ name, requirement }) => lowered(name + " " + requirement).replace(IGNORED, "")).join(" ");
  const isProse = (quote) => quote.trim().split(/\s+/).length >= 5 && !/[[\](){}=<>_]/.test(quote);
  return [...quotes].filter(([quote, pieces]) => !found.has(quote) && !quotedSteps.has(quote) && pieces.length && isProse(quote) && !pieces.every((piece) => asked.includes(piece))).map(([quote]) => quote);
};

/* A step that an answer of a run cites; without the number of a step that is on the page, it is only text. A panel that is
   closed is in the document no more. */
const listOf = (panel, run) => [...(panel?.querySelectorAll("section.turns") || [])].find((section) => section.dataset.runs.split(" ").includes(String(run)));
const cite = (number, run, isLinked) => (isLinked ? make("button", { type: "button", class: "chip", onclick: (event) => listOf(event.currentTarget.closest("article"), run)?.reveal(number) }, "step " + number) : make("span", { class: "chip" }, "step " + number));
/* The criteria whose answers in some runs cite each step. */
const citedIn = (texts, runs) => {
  const cited = new Map();
  for (const { name, answers } of texts.criteria) for (const number of new Set(runs.flatMap((run) => answers[run]?.more.evidence || []))) cited.set(number, [...(cited.get(number) || []), name]);
  return cited;
};
/* A text of one run: its turns if it is a conversation. Those that an answer can cite have the ids of their steps. */
const part = (title, name, side, { folds = false, runs = [], cited, suffix = "" } = {}) => {
  const turns = side.turns?.[name];
  if (!turns) return text(title, side[name], name + suffix, folds);
  const [before, isNumbered, own] = turns;
  const isRun = name === "response" && isNumbered;
  const more = isRun ? { ids: "step-" + suffix, runs: runs.join(" "), cited, handed: side.handed || side.response } : { handed: side[name], isNumbered };
  return [...text(title, before, name + suffix, folds), turnsOf(before ? title + ": turns" : title, own.map((step, at) => step || side.steps[at]), more)];
};
const isRunGraded = (side) => Boolean(side.turns?.response?.[1]);
/* The steps beside a response; the graded steps are the response. */
const stepsPart = (title, side, { runs, cited, suffix = "" }) => (side.steps && !isRunGraded(side) ? [turnsOf(title, side.steps, { ids: "step-" + suffix, runs: runs.join(" "), cited, handed: side.handed || null })] : []);
const showFiles = (files) => {
  if (!files) return [];
  const items = files.map(([name, type, size, sha256, url, image], place) => make("li", {}, image ? make("img", { src: image, alt: "attachment " + (place + 1) }) : null,
    make("small", {}, [place + 1 + ". " + (name || "attachment"), type, size === null ? null : size.toLocaleString("en") + " bytes", sha256 && "SHA-256 " + sha256, url].filter(Boolean).join(", "))));
  return [make("h3", {}, "Attachments"), make("ul", { class: "files" }, ...items)];
};
/* The graded texts and the others. Without the judge's answers, as for labelling, no step is marked as cited. */
const gradedOf = (texts, isBlind = false) => [...part("Task", "query", texts, { folds: true }), ...bothSides("Response", texts.sides.some((side) => side && isRunGraded(side)) ? ["response", "handed"] : ["response"], texts, isBlind, (title, side, more) => part(title, "response", side, more))];
const furtherOf = (texts, isBlind = false) => [
  ...text("Thinking", texts.thinking, "thinking"), ...part("Reference", "reference", texts),
  ...(texts.context || []).flatMap((words, place) => text("Document " + (place + 1), words, "document " + (place + 1))), ...showFiles(texts.files), ...bothSides("Steps", ["steps", "handed"], texts, isBlind, stepsPart)];
const textsOf = (texts) => [...gradedOf(texts, true), ...furtherOf(texts, true)];

const answerParts = (answer, weight, run, steps) => {
  const votes = (answer.more.votes || []).map(([who, verdict, why]) => make("li", {}, who + ": " + (verdict ? inWords({ state: "answered", verdict }, weight) : "failed") + (why ? ", " + why : "")));
  const notes = [];
  if (answer.more.agreement !== undefined && answer.more.agreement !== null) notes.push(Math.round(answer.more.agreement * 100) + " % of the panel agree");
  if (answer.more.confidence !== undefined) notes.push("confidence " + answer.more.confidence.toFixed(2));
  if (answer.more.escalated) notes.push("escalated to the expensive judge");
  if (answer.more.neutralized) notes.push("text that imitates prompt structure was sanitized");
  return [markOf(answer), " ", make("b", {}, answer.words || inWords(answer, weight)), " ", answer.reason ? make("span", { class: "reason" }, answer.reason) : null,
    ...(answer.more.evidence || []).flatMap((number) => [" ", cite(number, run, Boolean(steps?.[number - 1]))]), notes.length ? make("small", {}, " (" + notes.join("; ") + ")") : null, votes.length ? make("ul", { class: "votes" }, ...votes) : null].filter(Boolean);
};
const isSame = ([one, other]) => two && one && other && one.state === other.state && one.verdict === other.verdict && one.value === other.value;
const verdictCell = (criterion, run, texts) => {
  const answer = criterion.answers[run];
  return make("td", { class: "why" }, ...(answer ? answerParts(answer, criterion.weight, run, texts.sides[run]?.steps) : []), run && isSame(criterion.answers) ? make("small", { class: "same" }, " unchanged") : "");
};
/* With a criterion filtered, or a tag, its answer comes first, with the places that it quotes. */
const filteredAnswers = (texts) => {
  if (filters.criterion === "") return [];
  const column = data.columns[Number(filters.criterion)];
  const asked = texts.criteria.filter(({ name, requirement, tags }) => (data.kind === "tags" ? (tags || []).includes(column[0]) : isOf(column, name, requirement)));
  return asked.map((criterion) => make("section", { class: "first-answer", "aria-label": "Answer to " + criterion.name }, make("h3", {}, criterion.name, " ", make("small", {}, signed(criterion.weight)), make("span", { class: "words" }, criterion.requirement)),
    ...criterion.answers.map((answer, run) => answer && make("p", { class: "why" }, two ? make("b", { class: "r" + (run + 1) }, data.runs[run] + ": ") : null, ...answerParts(answer, criterion.weight, run, texts.sides[run]?.steps), run && isSame(criterion.answers) ? make("small", { class: "same" }, " unchanged") : "",
      make("span", { class: "quotes" }, ...quotesIn(answer.reason).map((quote) => make("button", { type: "button", class: "quote", "data-quote": quote, hidden: "", onclick: () => showQuote(quote) }, "\u201c" + quote + "\u201d")))))));
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
    return make("tr", { "data-criterion": criterion.name }, name, ...data.runs.flatMap((_, run) => [verdictCell(criterion, run, texts), pointsCell(criterion.answers[run])]), overrule(row, criterion));
  });
  if (!rows.length) return [];
  const heads = (two ? data.runs : ["answer"]).flatMap((name, run) => [make("th", { scope: "col", class: two ? "r" + (run + 1) : null }, name), make("th", { scope: "col", class: "n" }, "points")]);
  const sums = texts.grades.flatMap((grade) => [make("td", { class: "sum", colspan: "2" }, sumText(grade))]);
  return [make("div", { class: "scroll" }, make("table", { class: "answers-table" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "criterion"), ...heads, make("th", { scope: "col", class: "label" }, "your answer"))),
    make("tbody", {}, ...rows), make("tfoot", {}, make("tr", {}, make("th", { scope: "row" }, "sum"), ...sums, make("td", { class: "label" })))))];
};
const figures = (values) => Object.entries(values).map(([name, value]) => name + " " + (value === null ? "not computed" : value.toFixed(3))).join(", ");
const exploredText = (grade) => grade?.explored ? " An explorer showed the judge " + grade.explored + "." : "";
const gradeTexts = (texts) => texts.grades.map((grade, run) => make("p", { class: "grade" }, two ? make("b", { class: "r" + (run + 1) }, data.runs[run] + ": ") : null, make("b", {}, (grade?.why ? scoreText(grade) : resultText(grade)) + "."), grade?.why ? " " + grade.why : "",
  (grade?.penalty ? " " + grade.penalty.toFixed(3) + " deducted for length." : "") + (grade?.metrics ? " Metrics: " + figures(grade.metrics) + "." : "") + (grade?.tags ? " By tag: " + figures(grade.tags) + "." : "") + (grade?.omitted ? " " + grade.omitted.toLocaleString("en") + " characters of the steps were not shown to the judge." : "") + exploredText(grade) + (grade?.error && !grade.why ? " " + grade.error : "") + (grade?.note ? " " + grade.note : "") + (grade?.reason ? " " + grade.reason : "")));
/* The parts of the panel, each made of the row and its texts. */
const SECTIONS = [
  () => (data.redacted ? [make("p", { class: "hint" }, "The texts and the reasons are left out of this page.")] : []),
  (row, texts) => gradeTexts(texts),
  (row, texts) => filteredAnswers(texts),
  () => [byYou],
  (row, texts) => [make("div", { class: "parts" }, make("div", { class: "graded" }, ...gradedOf(texts)), make("div", { class: "answers-part", tabindex: "0", role: "group", "aria-label": "Answers" }, ...verdictTable(row, texts)), make("div", { class: "further" }, ...furtherOf(texts)))],
];
let openings = 0, openedFor = "";
async function showOne(place, focuses = true) {
  const turn = ++openings;
  openedFor = filters.criterion;
  const row = data.rows[place];
  const texts = await load(row);
  if (turn !== openings) return;
  opened = place;
  const at = shown.indexOf(row);
  const link = (step, name) => { const other = shown[at + step]; return at >= 0 && other ? make("a", { href: linkOf(other), rel: step > 0 ? "next" : "prev" }, name) : null; };
  $("one").replaceChildren(
    make("nav", { class: "turn", "aria-label": "Other submissions" }, link(-1, "Previous"), link(1, "Next"), make("button", { type: "button", class: "widen", onclick: () => widen() }, document.body.classList.contains("wide") ? "Beside the table" : "Whole width"), make("button", { type: "button", class: "to-answers", onclick: () => { $("one").querySelector(".answers-part").scrollIntoView(); $("one").querySelector(".answers-part").focus(); } }, "Answers"), make("button", { type: "button", class: "overrule", "aria-pressed": String(document.body.classList.contains("overruling")), onclick: () => toggleOverruling() }, "Overrule"), make("button", { type: "button", class: "close", onclick: () => go({ row: null }) }, "Close")),
    make("h2", {}, titleOf(row)), ...SECTIONS.flatMap((section) => section(row, texts)));
  quoted = quotesOf(texts);
  quotedSteps = new Map();
  const found = findQuotes(quoted);
  quotedSteps = findInSteps([...quoted].filter(([quote]) => !found.has(quote)), texts);
  if (quotedSteps.size) findQuotes(quoted);
  const missing = unfound(quoted, found, texts);
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
