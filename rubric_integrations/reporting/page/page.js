/* Text from models and users is put into the document with textContent only: it must never become markup. */
(async () => {
  const unpack = async (element) => {
    const letters = atob(element.textContent);
    const packed = new Uint8Array(letters.length);
    for (let at = 0; at < letters.length; at++) packed[at] = letters.charCodeAt(at);
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  };
  const data = await unpack(document.getElementById("data"));
  const two = data.runs.length > 1;
  const last = data.runs.length - 1;
  const $ = (id) => document.getElementById(id);

  /* The texts of the submissions are in blocks, of which the last few that were opened stay unpacked. */
  const packedBlocks = document.getElementsByClassName("block");
  const rowsOfBlock = [];
  data.rows.forEach((row, number) => { row.number = number; (rowsOfBlock[row.at[0]] ||= []).push(row); });
  const recent = new Map();
  const loadBlock = async (number) => {
    const block = recent.get(number) || unpack(packedBlocks[number]);
    recent.delete(number);
    recent.set(number, block);
    if (recent.size > 4) recent.delete(recent.keys().next().value);
    return block;
  };
  /* One submission: its texts, its grades, and its criteria with their answer in each run. */
  const load = async (row) => {
    const block = await loadBlock(row.at[0]);
    const texts = block.rows[row.at[1]];
    const criteria = new Map();
    texts.grades.forEach((grade, run) => (grade?.answers || []).forEach(([place, state, verdict, good, reason, more]) => {
      const [name, requirement, weight, required, tags, options, range] = block.criteria[place];
      const key = JSON.stringify([name, requirement]);
      if (!criteria.has(key)) criteria.set(key, { key, name, requirement, weight, required, tags, options, range, answers: [] });
      criteria.get(key).answers[run] = { state, verdict, good, reason, more: more || {} };
    }));
    return { ...texts, grades: row.grades.map((grade, run) => grade && { ...grade, ...texts.grades[run] }), criteria: [...criteria.values()] };
  };

  const make = (name, attributes = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "class") element.className = value;
      else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value !== undefined && value !== null) element.setAttribute(key, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };

  const store = labelStore(data, load);
  const titleOf = (row) => (row.copy ? row.id + " (" + row.copy + ")" : row.id);
  const linkOf = (row) => "#s" + row.number;

  /* Columns: the criteria that all rows have, or their tags. An answer is [state, verdict, how good it is from 0 to 1]. */
  const isOf = (column, name, requirement) => column[0] === name && (column[1] === "" || column[1] === requirement);
  const valueAt = (row, run, place) => {
    const value = row.grades[run]?.cells?.[place];
    if (value === undefined || value === null) return null;
    const [state, verdict, good] = data.kind === "tags" ? ["answered", null, value] : data.answers[value];
    return { state, verdict, good };
  };
  const labelAt = (row, place) =>
    (data.kind === "criteria" && store.ofRow(row).find(({ criterion, requirement }) => isOf(data.columns[place], criterion, requirement))) || null;
  const glyph = (answer) => {
    if (answer.state === "failed") return "!";
    if (answer.state === "abstained") return "?";
    if (answer.state === "open") return "\u00b7";
    if (answer.state === "inapplicable") return "\u2013";
    if (answer.verdict === "MET" || answer.verdict === "UNMET") return answer.verdict[0];
    return String(Math.round(answer.good * 100) / 100).replace(/^0\./, ".");
  };
  const shade = (answer) => (answer.state === "answered" ? "g" + Math.round(answer.good * 4) : answer.state);
  const inWords = (answer) => (answer.state === "failed" ? "judge failed" : answer.state === "open" ? "not requested" : answer.state === "inapplicable" ? "does not apply" : answer.verdict ?? answer.good.toFixed(2));
  const scoreText = (grade) => {
    if (!grade) return "not in this run";
    if (grade.range) return (grade.range[0] === null ? "?" : grade.range[0].toFixed(2)) + ".." + grade.range[1].toFixed(2);
    if (grade.score === undefined) return grade.error ? "not graded" : "undefined";
    return grade.score.toFixed(3);
  };
  const delta = (row) =>
    two && row.grades[0]?.score !== undefined && row.grades[1]?.score !== undefined ? row.grades[1].score - row.grades[0].score : null;

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

  /* One submission. */
  const text = (title, words) => (words ? [make("h3", {}, title), make("pre", { tabindex: "0" }, words)] : []);
  /* A step that an answer cites; without the number of a step that is on the page, it is only text. */
  const cite = (number, isLinked) => {
    const open = () => { const step = $("step-" + number); step.open = true; step.scrollIntoView({ block: "center" }); step.firstChild.focus(); };
    return isLinked ? make("button", { type: "button", class: "chip", onclick: open }, "step " + number) : make("span", { class: "chip" }, "step " + number);
  };
  const showSteps = (steps) => {
    if (!steps) return [];
    const call = ([name, args, result, failed]) => [make("p", { class: "call" }, make("b", {}, name), failed ? " " : null, failed ? make("span", { class: "tag" }, "error") : null),
      ...[["arguments", args], ["result", result]].filter(([, words]) => words !== null).flatMap(([title, words]) => [make("small", {}, title), make("pre", { tabindex: "0", "aria-label": title }, words)])];
    const items = steps.map(([role, who, words, calls], place) => make("li", {}, make("details", { id: "step-" + (place + 1) },
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
  const verdictCell = (answer, steps) => {
    if (!answer) return make("td", {}, "");
    const votes = (answer.more.votes || []).map(([who, verdict, why]) => make("li", {}, who + ": " + (verdict || "failed") + (why ? ", " + why : "")));
    const notes = [];
    if (answer.more.agreement !== undefined && answer.more.agreement !== null) notes.push(Math.round(answer.more.agreement * 100) + " % of the panel agree");
    if (answer.more.confidence !== undefined) notes.push("confidence " + answer.more.confidence.toFixed(2));
    if (answer.more.escalated) notes.push("escalated to the expensive judge");
    if (answer.more.neutralized) notes.push("text that imitates prompt structure was sanitized");
    return make("td", { class: "why" }, make("i", { class: "cell " + shade(answer), "aria-hidden": "true" }, glyph(answer)), " ", make("b", {}, inWords(answer)), " ", answer.reason || "",
      ...(answer.more.evidence || []).flatMap((number) => [" ", cite(number, Boolean(steps?.[number - 1]))]), notes.length ? make("small", {}, " (" + notes.join("; ") + ")") : null, votes.length ? make("ul", { class: "votes" }, ...votes) : null);
  };
  const BINARY = ["MET", "UNMET", "CANNOT_ASSESS"];
  const seenIn = data.columns.map(() => null);
  const seenAnswers = (criterion) => {
    const place = data.kind === "criteria" ? data.columns.findIndex((column) => isOf(column, criterion.name, criterion.requirement)) : -1;
    if (place >= 0) seenIn[place] ||= [...new Set(data.rows.map((row) => valueAt(row, last, place)?.verdict).filter(Boolean))];
    return [...(place >= 0 ? seenIn[place] : []), ...criterion.answers.map((answer) => answer?.verdict).filter(Boolean)];
  };
  /* What the reader answers here is no sample, and the judge's answer stands beside it. A drawn judgment that was labelled
     before keeps its mark. */
  const setLabel = (row, criterion, verdict) => {
    const before = store.own(row, criterion);
    const blind = Boolean(before?.blind && before.verdict === verdict);
    store.set(row, criterion, { reason: before?.reason, sampled: before?.sampled || "chosen", blind, verdict });
    showLabels();
  };
  const overrule = (row, criterion) => {
    const { options: known = [], range } = criterion;
    const seen = known.length || range ? known : seenAnswers(criterion);
    const isBinary = !range && !known.length && seen.every((verdict) => BINARY.includes(verdict));
    const words = isBinary ? BINARY : [...new Set([...seen, "CANNOT_ASSESS"])];
    const label = store.own(row, criterion);
    const name = "Your answer to " + criterion.name;
    const judged = criterion.answers[last]?.verdict;
    const problem = make("span", { role: "alert" });
    const confirm = make("button", { type: "button", "aria-label": "Confirm " + criterion.name + ": " + judged }, "confirm");
    const showConfirmed = () => confirm.setAttribute("aria-pressed", String(store.own(row, criterion)?.verdict === judged));
    const set = (event) => {
      const { value } = event.target;
      const answer = value.trim() ? readAnswer(value, criterion) : { verdict: "" };
      problem.textContent = answer.problem || "";
      if (!answer.problem) setLabel(row, criterion, answer.verdict);
      showConfirmed();
    };
    const cellOf = (control) => {
      confirm.addEventListener("click", () => { setLabel(row, criterion, judged); control.value = judged; problem.textContent = ""; showConfirmed(); });
      showConfirmed();
      const controls = [["answered", "abstained"].includes(criterion.answers[last]?.state) ? confirm : null, control];
      if (!label) return make("td", { class: "label" }, ...controls, problem);
      /* A key on a focused field would replace the label. */
      for (const each of controls) if (each) each.disabled = true;
      const change = make("button", { type: "button", "aria-label": "Change " + name.toLowerCase(), onclick: () => { for (const each of controls) if (each) each.disabled = false; change.remove(); control.focus(); } }, "change");
      return make("td", { class: "label" }, ...controls, change, problem);
    };
    /* A number is typed, and so is an option that a run of an earlier version does not have, and no other row shows. */
    if (range || (!isBinary && words.length < 3)) {
      const input = make("input", { "aria-label": name, placeholder: range ? range[0] + " to " + range[1] : "not labelled", size: "12", onchange: set });
      input.value = label?.verdict || "";
      return cellOf(input);
    }
    const select = make("select", { "aria-label": name, oninput: set }, ...options([["", "not labelled"], ...words.map((word) => [word, word])]));
    if (label && !words.includes(label.verdict)) select.append(make("option", { value: label.verdict }, label.verdict));
    select.value = label?.verdict || "";
    return cellOf(select);
  };
  const textsOf = (texts) => [
    ...text("Task", texts.query), ...text("Thinking", texts.thinking), ...text("Response", texts.response), ...text("Reference", texts.reference),
    ...(texts.context || []).flatMap((words, place) => text("Document " + (place + 1), words)), ...showFiles(texts.files), ...showSteps(texts.steps)];
  let openings = 0;
  async function showOne(place) {
    const number = ++openings;
    const row = data.rows[place];
    const texts = await load(row);
    if (number !== openings) return;
    const at = shown.indexOf(row);
    const turn = (step, name) => { const other = shown[at + step]; return at >= 0 && other ? make("a", { href: linkOf(other), rel: step > 0 ? "next" : "prev" }, name) : null; };
    const rows = texts.criteria.map((criterion) => {
      const tags = (criterion.tags || []).flatMap((tag) => [" ", make("span", { class: "tag" }, tag)]);
      const name = make("th", { scope: "row" }, make("span", { class: "key" }, criterion.name), " ", make("small", {}, (criterion.weight > 0 ? "+" : "") + criterion.weight), criterion.required ? " " : null, criterion.required ? make("span", { class: "tag" }, "required") : null, ...tags, make("span", { class: "words" }, criterion.requirement));
      return make("tr", {}, name, ...data.runs.map((_, run) => verdictCell(criterion.answers[run], texts.grades[run]?.unlinked ? null : texts.steps)), overrule(row, criterion));
    });
    const heads = two ? data.runs : ["answer"];
    const figures = (values) => Object.entries(values).map(([name, value]) => name + " " + (value === null ? "not computed" : value.toFixed(3))).join(", ");
    const grades = texts.grades.map((grade, run) => make("p", {}, two ? make("b", { class: "r" + (run + 1) }, data.runs[run] + ": ") : null, scoreText(grade) + (grade && !grade.error ? (grade.passed ? ", passed" : ", not passed") : "") +
      (grade?.low ? ", as only " + Math.floor(100 * grade.coverage) + " % of the rubric was assessed" : "") +
      (grade?.partial ? ", partial: the rubric leaves out a part of its file" : "") +
      (grade?.penalty ? ", " + grade.penalty.toFixed(3) + " deducted for length" : "") + (grade?.metrics ? ", " + figures(grade.metrics) : "") + (grade?.tags ? "; " + figures(grade.tags) : "") + (grade?.omitted ? "; " + grade.omitted.toLocaleString("en") + " characters of the steps were not shown to the judge" : "") + (grade?.error ? ": " + grade.error : "") + (grade?.note ? "; " + grade.note : "") + (grade?.reason ? ". " + grade.reason : "")));
    $("one").replaceChildren(
      make("nav", { class: "turn", "aria-label": "Submissions" }, make("a", { href: "#list" }, "All submissions"), turn(-1, "Previous"), turn(1, "Next")),
      make("h2", {}, titleOf(row)), ...grades,
      make("div", { class: "scroll" }, make("table", { class: "answers-table" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "criterion"), ...heads.map((name) => make("th", { scope: "col" }, name)), make("th", { scope: "col" }, "your answer"))), make("tbody", {}, ...rows))),
      ...textsOf(texts));
    showView("one");
    store.see(row);
    scrollTo(0, 0);
    $("one").focus();
  }

  const save = async () => {
    const lines = await store.lines();
    const name = store.rater.replace(/[^\p{L}\p{N}._-]+/gu, "-");
    const link = make("a", { download: name ? "labels-" + name + ".jsonl" : "labels.jsonl", href: URL.createObjectURL(new Blob(lines.map((line) => line + "\n"), { type: "application/jsonl" })) });
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const number = (count, words) => count + " " + words + (count === 1 ? "" : "s");
  const totalLabels = () => [...store.counts.values()].reduce((a, b) => a + b, 0);
  const status = make("span", { role: "status" });
  const rater = make("input", { size: "14", autocomplete: "name", onchange: () => { store.setRater(rater.value); showLabels(); route(); } });
  const file = make("input", { type: "file", accept: ".jsonl", onchange: async () => { if (file.files[0]) { showLabels(await store.merge(await file.files[0].text())); route(); } } });
  const remove = () => { if (confirm("Delete all " + number(totalLabels(), "label") + " of this page?")) { store.clear(); showLabels(); route(); } };
  const buttons = [make("button", { type: "button", onclick: save }, "Export labels"), make("button", { type: "button", onclick: remove }, "Delete labels")];
  $("labels").append(status, make("label", {}, "your name", rater), ...buttons, make("label", {}, "merge a file of labels", file));
  function showLabels(merged) {
    const { counts, shared } = store;
    const words = totalLabels() ? [...counts].map(([who, count]) => number(count, "label") + (who ? " by " + who : "")).join(", ") + ", stored in this browser." : data.queue ? "No labels yet." : "Open a submission to confirm or overrule its answers.";
    const several = shared.judgments ? " Of " + number(shared.judgments, "judgment") + " with several raters, they disagree on " + shared.disagreements + "." : "";
    const result = merged ? " " + number(merged.added, "label") + " merged" + (merged.unknown ? ", and " + merged.unknown + " that belong to no judgment of this page were left out." : ".") : "";
    status.textContent = words + several + result;
    rater.value = store.rater;
    for (const button of buttons) button.hidden = !totalLabels();
  }

  /* Shows one of the views: the list, one submission, or the judgments to label. */
  function showView(name) {
    for (const view of ["list", "one", "label"]) if ($(view)) $(view).hidden = view !== name;
    $("overview").hidden = name !== "list";
    if (name !== "one") $("one").replaceChildren(); /* its steps have the same ids as those of a judgment to label */
    if (name !== "label") $("label-texts")?.replaceChildren();
  }
  const labelling = data.queue && labellingView({ data, load, make, $, store, textsOf, titleOf, linkOf, changed: () => showLabels(), save });
  let top = 0; /* where the list was scrolled to, which hiding it may lose */
  function route() {
    const match = /^#s(\d+)$/.exec(location.hash);
    if (!$("list").hidden) top = $("window").scrollTop;
    if (match && data.rows[Number(match[1])]) { showOne(Number(match[1])); return; }
    openings++; /* a submission that is still being unpacked must not open now */
    if (labelling && ["", "#label"].includes(location.hash)) { showView("label"); labelling.show(); return; }
    showView("list");
    $("window").scrollTop = top;
    showList();
    $("window").scrollTop = top;
    drawVisible(false);
  }
  addEventListener("hashchange", route);
  addEventListener("keydown", (event) => {
    if ($("one").hidden || event.target.closest("input, select, textarea") || event.altKey || event.ctrlKey || event.metaKey) return;
    const to = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
    const link = event.key === "Escape" ? $("one").querySelector("a") : to && $("one").querySelector("a[rel=" + to + "]");
    if (link) { event.preventDefault(); location.hash = link.hash; }
  });
  route();
  showLabels();
})();
