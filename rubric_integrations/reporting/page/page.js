"use strict";
/* Text from models and users is put into the document with textContent only: it must never become markup. */
(async () => {
  const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (c) => c.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = JSON.parse(await new Response(unpacked).text());
  const two = data.runs.length > 1;
  const last = data.runs.length - 1;
  const $ = (id) => document.getElementById(id);

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

  /* Labels: answers that the reader overruled, stored in this browser under a key of these runs. */
  const store = "rubric-labels-" + data.key;
  let labels = {};
  try { labels = JSON.parse(localStorage.getItem(store) || "{}"); } catch { /* without storage, labels last until the page is closed */ }
  const saveLabels = () => { try { localStorage.setItem(store, JSON.stringify(labels)); } catch { /* see above */ } showLabels(); };
  const labelKey = (row, place) => JSON.stringify([row.id, data.criteria[place].name, ...(row.copy ? [row.copy] : [])]);
  const titleOf = (row) => (row.copy ? row.id + " (" + row.copy + ")" : row.id);

  const answersOf = (row, run) => {
    const answers = new Map();
    for (const [place, state, verdict, good, reason, more] of row.grades[run]?.answers || [])
      answers.set(place, { state, verdict, good, reason, more: more || {} });
    return answers;
  };
  const glyph = (answer) => {
    if (answer.state === "failed") return "!";
    if (answer.state === "abstained") return "?";
    if (answer.state === "open") return "\u00b7";
    if (answer.state === "inapplicable") return "\u2013";
    if (answer.verdict === "MET" || answer.verdict === "UNMET") return answer.verdict[0];
    return String(Math.round(answer.good * 100) / 100).replace(/^0\./, ".");
  };
  const shade = (answer) => (answer.state === "answered" ? "g" + Math.round(answer.good * 4) : answer.state);
  const inWords = (answer) => (answer.state === "failed" ? "judge failed" : answer.state === "open" ? "not requested" : answer.state === "inapplicable" ? "does not apply" : answer.verdict);
  const scoreText = (grade) => {
    if (!grade) return "not in this run";
    if (grade.range) return (grade.range[0] === null ? "?" : grade.range[0].toFixed(2)) + ".." + grade.range[1].toFixed(2);
    if (grade.score === undefined) return grade.error ? "not graded" : "undefined";
    return grade.score.toFixed(3);
  };
  const delta = (row) =>
    two && row.grades[0]?.score !== undefined && row.grades[1]?.score !== undefined ? row.grades[1].score - row.grades[0].score : null;
  const changed = (row, place, all) => {
    if (!two || !row.grades[0] || !row.grades[1]) return false;
    const [a, b] = (all || [0, 1].map((run) => answersOf(row, run))).map((answers) => answers.get(place));
    return Boolean(a?.verdict && b?.verdict) && a.verdict !== b.verdict;
  };

  /* The list. */
  const choices = { text: "", status: "all", criterion: "", answer: "", sort: "order" };
  const options = (list) => list.map(([value, text]) => make("option", { value }, text));
  const field = (name, text, control) => {
    control.id = "f-" + name;
    control.addEventListener("input", () => { choices[name] = control.value; showList(); });
    return make("label", { for: control.id }, text, control);
  };
  const statuses = [["all", "all"], ["passed", "passed"], ["not", "not passed"], ["failed", "not graded"], ["abstained", "with abstentions"], ["split", "panel disagreed"], ["labelled", "overruled"]];
  if (two) statuses.push(["changed", "answers changed"], ["better", "better"], ["worse", "worse"]);
  const sorts = [["order", "as in the run"], ["low", "lowest score first"], ["high", "highest score first"], ["id", "id"]];
  if (two) sorts.push(["fell", "largest decrease first"], ["rose", "largest increase first"]);
  $("filters").append(
    field("text", "search", make("input", { type: "search" })),
    field("status", "show", make("select", {}, ...options(statuses))),
    field("criterion", "criterion", make("select", {}, ...options([["", "any"], ...data.criteria.map((c, i) => [String(i), c.name])]))),
    field("answer", "answered", make("select", {}, ...options([["", "in any way"], ["good", "as wanted"], ["part", "partly"], ["bad", "not as wanted"], ["abstained", "could not tell"], ["failed", "judge failed"], ["open", "not requested"], ["inapplicable", "does not apply"]]))),
    field("sort", "sort", make("select", {}, ...options(sorts))),
  );
  $("filters").addEventListener("submit", (event) => event.preventDefault());

  const kind = (answer) => (answer.state !== "answered" ? answer.state : answer.good === 1 ? "good" : answer.good === 0 ? "bad" : "part");
  const wanted = (row) => {
    const grade = row.grades[last] || row.grades[0];
    const answers = answersOf(row, last);
    const difference = delta(row);
    const status = {
      all: true, passed: grade?.passed && !grade.error, not: !grade?.passed && !grade?.error, failed: Boolean(grade?.error),
      abstained: [...answers.values()].some((a) => a.state === "abstained"),
      split: [...answers.values()].some((a) => a.more.agreement !== undefined && a.more.agreement !== null && a.more.agreement < 1),
      labelled: data.criteria.some((_, place) => labelKey(row, place) in labels),
      changed: data.criteria.some((_, place) => changed(row, place)), better: difference > 1e-9, worse: difference !== null && difference < -1e-9,
    }[choices.status];
    if (!status) return false;
    const text = choices.text.toLowerCase();
    if (text && ![row.id, row.query, row.response].some((part) => (part || "").toLowerCase().includes(text))) return false;
    if (!choices.answer) return true;
    const selected = choices.criterion === "" ? [...answers.values()] : [answers.get(Number(choices.criterion))].filter(Boolean);
    return selected.some((answer) => kind(answer) === choices.answer);
  };
  const low = (row) => { const g = row.grades[last]; return g?.score ?? g?.range?.[0] ?? null; };
  const order = {
    order: null, id: (a, b) => a.id.localeCompare(b.id, undefined, { numeric: true }),
    low: (a, b) => (low(a) ?? 9) - (low(b) ?? 9), high: (a, b) => (low(b) ?? -9) - (low(a) ?? -9),
    fell: (a, b) => (delta(a) ?? 9) - (delta(b) ?? 9), rose: (a, b) => (delta(b) ?? -9) - (delta(a) ?? -9),
  };
  let shown = data.rows;

  const cell = (row, place, answers, all) => {
    const answer = answers.get(place);
    if (!answer) return make("td");
    const label = labels[labelKey(row, place)];
    const look = ["cell", shade(answer), changed(row, place, all) ? "changed" : "", label ? "overruled" : ""].join(" ");
    const words = data.criteria[place].name + ": " + inWords(answer) + (label ? ", overruled: " + label.verdict : "");
    return make("td", { title: words }, make("i", { class: look, "aria-hidden": "true" }, glyph(answer)), make("span", { class: "vh" }, inWords(answer)));
  };
  function showList() {
    shown = data.rows.filter(wanted);
    if (order[choices.sort]) shown = [...shown].sort(order[choices.sort]);
    $("count").textContent = shown.length + " of " + data.rows.length + " submissions";
    const heads = two ? data.runs.map((name, run) => make("th", { scope: "col", class: "score r" + (run + 1) }, name)) : [make("th", { scope: "col", class: "score" }, "score")];
    if (two) heads.push(make("th", { scope: "col", class: "score" }, "change"));
    const head = make("tr", {}, make("th", { scope: "col" }, "submission"), ...heads, make("th", { scope: "col" }, "passed"),
      ...data.criteria.map((c) => make("th", { scope: "col", class: "c", title: c.requirement }, make("span", {}, c.name))));
    const body = make("tbody");
    for (const row of shown) {
      const grade = row.grades[last] || row.grades[0];
      const all = data.runs.map((_, run) => answersOf(row, run));
      const difference = delta(row);
      const scores = (two ? row.grades : [grade]).map((g) => make("td", { class: "score" }, scoreText(g)));
      if (two) scores.push(make("td", { class: "score" }, difference === null ? "" : (difference > 0 ? "+" : "") + difference.toFixed(3)));
      const passed = grade.error ? make("td", {}, make("i", { class: "cell failed", "aria-hidden": "true" }, "!"), make("span", { class: "vh" }, "not graded")) : make("td", { class: grade.passed ? "" : "no" }, grade.passed ? "yes" : "no");
      body.append(make("tr", {}, make("th", { scope: "row" }, make("a", { href: "#s" + data.rows.indexOf(row) }, titleOf(row))), ...scores, passed,
        ...data.criteria.map((_, place) => cell(row, place, all[last].size ? all[last] : all[0], all))));
    }
    $("heat").replaceChildren(make("caption", { class: "vh" }, "Each submission with its score, and the answer to each criterion"), make("thead", {}, head), body);
  }

  /* One submission. */
  const text = (title, words) => (words ? [make("h3", {}, title), make("pre", { tabindex: "0" }, words)] : []);
  const verdictCell = (answer) => {
    if (!answer) return make("td", {}, "");
    const votes = (answer.more.votes || []).map(([who, verdict, why]) => make("li", {}, who + ": " + (verdict || "failed") + (why ? ", " + why : "")));
    const notes = [];
    if (answer.more.agreement !== undefined && answer.more.agreement !== null) notes.push(Math.round(answer.more.agreement * 100) + " % of the panel agree");
    if (answer.more.confidence !== undefined) notes.push("confidence " + answer.more.confidence.toFixed(2));
    if (answer.more.neutralized) notes.push("text that imitates prompt structure was sanitized");
    return make("td", { class: "why" }, make("i", { class: "cell " + shade(answer), "aria-hidden": "true" }, glyph(answer)), " ", make("b", {}, inWords(answer)), " ", answer.reason || "",
      notes.length ? make("small", {}, " (" + notes.join("; ") + ")") : null, votes.length ? make("ul", { class: "votes" }, ...votes) : null);
  };
  const overrule = (row, place) => {
    const key = labelKey(row, place);
    const answer = answersOf(row, last).get(place) || answersOf(row, 0).get(place);
    const binary = !answer || ["MET", "UNMET", "CANNOT_ASSESS", null].includes(answer.verdict);
    const seen = new Set(data.rows.map((other) => answersOf(other, last).get(place)?.verdict).filter(Boolean));
    const words = binary ? ["MET", "UNMET", "CANNOT_ASSESS"] : [...seen, "CANNOT_ASSESS"].filter((word, at, all) => all.indexOf(word) === at);
    const set = (verdict) => {
      if (verdict) labels[key] = { verdict, reason: labels[key]?.reason || "" };
      else delete labels[key];
      saveLabels();
    };
    const select = make("select", { "aria-label": "Your answer to " + data.criteria[place].name, oninput: (event) => set(event.target.value) }, ...options([["", "as judged"], ...words.map((word) => [word, word])]));
    if (labels[key] && !words.includes(labels[key].verdict)) select.append(make("option", { value: labels[key].verdict }, labels[key].verdict));
    select.value = labels[key]?.verdict || "";
    return make("td", {}, select);
  };
  function showOne(place) {
    const row = data.rows[place];
    const at = shown.indexOf(row);
    const turn = (step, name) => { const other = shown[at + step]; return at >= 0 && other ? make("a", { href: "#s" + data.rows.indexOf(other), rel: step > 0 ? "next" : "prev" }, name) : null; };
    const all = data.runs.map((_, run) => answersOf(row, run));
    const rows = data.criteria.map((criterion, c) => {
      if (!all.some((answers) => answers.has(c))) return null;
      const name = make("th", { scope: "row" }, make("span", { class: "key" }, criterion.name), " ", make("small", {}, (criterion.weight > 0 ? "+" : "") + criterion.weight), criterion.required ? " " : null, criterion.required ? make("span", { class: "tag" }, "required") : null, make("span", { class: "words" }, criterion.requirement));
      return make("tr", {}, name, ...all.map((answers) => verdictCell(answers.get(c))), overrule(row, c));
    });
    const heads = two ? data.runs : ["answer"];
    const grades = row.grades.map((grade, run) => make("p", {}, two ? make("b", { class: "r" + (run + 1) }, data.runs[run] + ": ") : null, scoreText(grade) + (grade && !grade.error ? (grade.passed ? ", passed" : ", not passed") : "") +
      (grade?.penalty ? ", " + grade.penalty.toFixed(3) + " deducted for length" : "") + (grade?.metrics ? ", " + Object.entries(grade.metrics).map(([name, value]) => name + " " + (value === null ? "not computed" : value.toFixed(3))).join(", ") : "") + (grade?.error ? ": " + grade.error : "") + (grade?.note ? "; " + grade.note : "") + (grade?.reason ? ". " + grade.reason : "")));
    $("one").replaceChildren(
      make("nav", { class: "turn", "aria-label": "Submissions" }, make("a", { href: "#list" }, "All submissions"), turn(-1, "Previous"), turn(1, "Next")),
      make("h2", {}, titleOf(row)), ...grades,
      make("div", { class: "scroll" }, make("table", { class: "answers-table" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "criterion"), ...heads.map((name) => make("th", { scope: "col" }, name)), make("th", { scope: "col" }, "overrule"))), make("tbody", {}, ...rows.filter(Boolean)))),
      ...text("Task", row.query), ...text("Thinking", row.thinking), ...text("Response", row.response), ...text("Reference", row.reference));
  }

  function showLabels() {
    const count = Object.keys(labels).length;
    const lines = () => data.rows.flatMap((row) => data.criteria.flatMap((criterion, place) => {
      const label = labels[labelKey(row, place)];
      if (!label) return [];
      const submission = Object.fromEntries(["response", "thinking", "query", "reference"].filter((name) => row[name]).map((name) => [name, row[name]]));
      const was = answersOf(row, last).get(place)?.verdict ?? null;
      return [JSON.stringify({ id: row.id, criterion: criterion.name, requirement: criterion.requirement, verdict: label.verdict, was, submission })];
    }));
    const save = () => {
      const link = make("a", { download: "labels.jsonl", href: URL.createObjectURL(new Blob([lines().join("\n") + "\n"], { type: "application/jsonl" })) });
      link.click();
      URL.revokeObjectURL(link.href);
    };
    const remove = () => { if (confirm("Delete all " + count + " labels of this page?")) { labels = {}; saveLabels(); route(); } };
    $("labels").replaceChildren(make("span", { role: "status" }, count ? count + (count > 1 ? " answers" : " answer") + " overruled, stored in this browser." : "Open a submission to overrule an answer."),
      ...(count ? [make("button", { type: "button", onclick: save }, "Export labels.jsonl"), make("button", { type: "button", onclick: remove }, "Delete labels")] : []));
  }

  function route() {
    const match = /^#s(\d+)$/.exec(location.hash);
    const one = match && data.rows[Number(match[1])] ? Number(match[1]) : null;
    $("overview").hidden = one !== null;
    $("list").hidden = one !== null;
    $("one").hidden = one === null;
    if (one !== null) { showOne(one); scrollTo(0, 0); $("one").focus(); }
    else showList();
  }
  addEventListener("hashchange", route);
  addEventListener("keydown", (event) => {
    if ($("one").hidden || event.target.closest("input, select, textarea") || event.altKey || event.ctrlKey || event.metaKey) return;
    const to = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
    const link = event.key === "Escape" ? $("one").querySelector("a") : to && $("one").querySelector("a[rel=" + to + "]");
    if (link) { event.preventDefault(); location.hash = link.hash; }
  });
  showList();
  route();
  showLabels();
})();
