/* Other weights and another pass mark, tried on the answers of the last run: nothing is judged again. */
const TRIED_BINS = 20;
const MOST_FLIPS = 20;
const asGraded = (row) => { const grade = row.grades[last]; return grade && !grade.error ? { score: grade.score ?? null, passed: Boolean(grade.passed) } : null; };
const meanOf = (grades) => {
  const scores = grades.map((grade) => grade?.score ?? null).filter((score) => score !== null);
  return scores.length ? scores.reduce((sum, score) => sum + score, 0) / scores.length : null;
};
const passedOf = (grades) => grades.filter((grade) => grade?.passed).length;
const binsOf = (grades) => {
  const bins = new Array(TRIED_BINS).fill(0);
  for (const grade of grades) if ((grade?.score ?? null) !== null) bins[Math.min(TRIED_BINS - 1, Math.floor(grade.score * TRIED_BINS))]++;
  return bins;
};
const threeDigits = (value) => (value === null ? "undefined" : value.toFixed(3));
/* A text in double quotes is the same in YAML and in JSON, but for characters that YAML wants escaped. */
const inQuotes = (text) => JSON.stringify(text).replace(/[\u007f-\u009f\u2028\u2029\ufeff]/g, (letter) => "\\u" + letter.charCodeAt(0).toString(16).padStart(4, "0"));
const weightsFile = (shares, weights, mark) => [
  "# Weights and a pass mark that were tried on the run " + inQuotes(shares.run) + ".",
  "# This is no rubric: it lacks the requirements, checks and guidelines. It changes the rubric of the run:",
  "#   rubric-integrations convert rubric.yaml --to native --weights weights.yaml --output changed.yaml",
  "pass_mark: " + mark,
  "weights:",
  ...shares.criteria.map(([name, requirement], at) => "  " + inQuotes(name) + ": " + weights[at] + "  # " + inQuotes(requirement.slice(0, 100))),
].join("\n") + "\n";

const tryWeights = (shares) => {
  const { criteria, marks: [mark], fixed } = shares;
  const before = data.rows.map(asGraded);
  const start = criteria.map(([, , weight]) => weight);
  const tried = { weights: [...start], mark };
  const span = 2 * Math.max(0, ...start.map(Math.abs)) || 1;
  /* A slider goes in steps that people would write. */
  const unit = 10 ** Math.floor(Math.log10(span / 100));
  const result = make("div", { class: "tried" }), says = make("p", { role: "status" }), flips = make("div", { class: "flips" });
  const inputs = [];
  let frame = 0;
  const later = () => { cancelAnimationFrame(frame); frame = requestAnimationFrame(update); };

  /* A slider and a field for the same number; `problemWith` says why a number is not possible. */
  const control = (name, { low, high, step, value, problemWith, take }) => {
    const disabled = fixed ? "" : null;
    const slider = make("input", { type: "range", min: low, max: high, step: "any", "aria-label": name, disabled });
    const typed = make("input", { type: "number", step: "any", "aria-label": name + ", as a number", disabled });
    const problem = make("span", { role: "alert" });
    const put = (number) => { slider.value = typed.value = number; problem.textContent = ""; take(number); };
    slider.value = typed.value = value;
    slider.addEventListener("input", () => { put(Number((Math.round(Number(slider.value) / step) * step).toPrecision(12))); later(); });
    typed.addEventListener("input", () => {
      const number = typed.value === "" ? NaN : Number(typed.value);
      problem.textContent = problemWith(number) || "";
      if (!problem.textContent) { slider.value = number; take(number); later(); }
    });
    inputs.push(() => put(value));
    return [slider, typed, make("small", {}, "was " + value), problem];
  };
  const rows = criteria.map(([name, requirement, weight, times, required], at) => {
    const isPenalty = weight < 0, leastOff = isPenalty && required ? unit : 0;
    const problemWith = (number) => (Number.isFinite(number) && Math.abs(number) <= 1e15 && (isPenalty ? number <= 0 : number >= 0) && !(leastOff && number === 0) ? null
      : isPenalty ? "takes a number below 0" + (leastOff ? ": a required penalty stays one" : ", or 0") : "takes a number from 0");
    return make("div", { class: "slid" }, make("span", { class: "what" }, make("span", { class: "key" }, name), required ? " " : null, required ? make("span", { class: "tag" }, "required") : null, times > 1 ? make("small", {}, " for each of up to " + times + " occurrences") : null, make("span", { class: "words" }, requirement)),
      ...control("Weight of " + name, { low: isPenalty ? -span : 0, high: isPenalty ? -leastOff : span, step: unit, value: weight, problemWith, take: (number) => { tried.weights[at] = number; } }));
  });
  const markRow = make("div", { class: "slid" }, make("span", { class: "what" }, make("b", {}, "Pass mark")),
    ...(mark === null ? [] : control("Pass mark", { low: 0, high: 1, step: 0.01, value: mark, problemWith: (number) => (number >= 0 && number <= 1 ? null : "takes a number from 0 to 1"), take: (number) => { tried.mark = number; } })));

  const chart = (old, now) => {
    const [first, second] = [binsOf(old), binsOf(now)], most = Math.max(1, ...first, ...second);
    const bins = second.map((count, at) => {
      const bin = make("span", { class: "bin" }, make("span", { class: "now" }), make("span", { class: "old" }));
      bin.title = (at / TRIED_BINS).toFixed(2) + " to " + ((at + 1) / TRIED_BINS).toFixed(2) + ": " + first[at] + " \u2192 " + count;
      bin.firstChild.style.height = (100 * count) / most + "%";
      bin.lastChild.style.height = (100 * first[at]) / most + "%";
      bin.lastChild.hidden = !first[at];
      return bin;
    });
    const line = make("span", { class: "mark-line" });
    line.style.left = 100 * tried.mark + "%";
    return [make("div", { class: "tried-bins", role: "img", "aria-label": "Scores from 0 to 1: filled as tried, outlined as graded, with the pass mark " + tried.mark }, ...bins, line),
      make("p", { class: "tried-axis", "aria-hidden": "true" }, make("span", {}, "0"), make("span", {}, "filled: tried; outlined: as graded; line: pass mark " + tried.mark), make("span", {}, "1"))];
  };
  const update = () => {
    if (fixed) return;
    const full = tried.weights.map((weight, at) => weight * criteria[at][3]);
    shownFor = null; /* the table may show what the last weights changed */
    whatIf.flips.clear();
    if (full.every((weight) => weight === 0)) { result.replaceChildren(); flips.replaceChildren(); says.textContent = "All weights are 0: there is no score."; return; }
    const patterns = gradesWith(shares, full, tried.mark);
    const now = shares.rows.map((place) => (place === null ? null : patterns[place]));
    data.rows.forEach((row, at) => { if (before[at] && now[at] && before[at].passed !== now[at].passed) whatIf.flips.add(row.number); });
    const flipped = data.rows.filter((row) => whatIf.flips.has(row.number));
    const gained = flipped.filter((row) => now[row.number].passed).length;
    const count = now.filter(Boolean).length;
    const line = (name, old, tried) => make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "n" }, old), make("td", { class: "n" }, make("b", {}, tried)));
    result.replaceChildren(
      make("table", {}, make("thead", {}, make("tr", {}, make("td", {}), ...["as graded", "tried"].map((name) => make("th", { scope: "col", class: "n" }, name)))),
        make("tbody", {}, line("mean score", threeDigits(meanOf(before)), threeDigits(meanOf(now))), line("passed", passedOf(before) + " of " + count, passedOf(now) + " of " + count))),
      ...chart(before, now));
    says.textContent = flipped.length ? number(flipped.length, "result") + " would change: " + gained + " would pass, " + (flipped.length - gained) + " would no longer pass." : "No result would change.";
    flips.replaceChildren(...(!flipped.length ? [] : [make("p", {}, make("a", { href: "#table?status=flipped" }, "Show them in the table")),
      make("ul", {}, ...flipped.slice(0, MOST_FLIPS).map((row) => make("li", {}, flipOf(row, now[row.number])))), flipped.length > MOST_FLIPS ? make("p", {}, "and " + (flipped.length - MOST_FLIPS) + " more") : ""]));
  };
  const flipOf = (row, { score, passed }) => make("span", {}, make("i", { class: "mark " + (passed ? "good" : "bad"), "aria-hidden": "true" }, passed ? "\u2713" : "\u2715"), " ",
    make("a", { href: linkOf(row) }, titleOf(row)), " " + threeDigits(before[row.number].score) + " \u2192 " + threeDigits(score) + (passed ? ", would pass" : ", would not pass"));
  const reset = () => { for (const put of inputs) put(); update(); };
  const exportWeights = () => saveText("weights.yaml", weightsFile(shares, tried.weights, tried.mark));
  const intro = fixed ? make("p", { class: "fixed" }, "The sliders are off: " + fixed + ".")
    : make("p", {}, "The answers" + (two ? " of " + shares.run : "") + " stay as they are; only their weights change. Submissions without a grade are left out.");
  const buttons = fixed ? [] : [make("div", { class: "choices" }, make("button", { type: "button", onclick: reset }, "Reset"), make("button", { type: "button", onclick: exportWeights }, "Export the weights"), make("small", {}, "a file that `convert --weights` applies to the rubric"))];
  const sliders = make("div", { class: "sliders", role: "group", "aria-label": "Weights and pass mark" }, ...(criteria.length ? [markRow, ...rows] : []), ...buttons);
  $("whatif-body").replaceChildren(intro, make("div", { class: "trying" }, result, sliders, make("div", { class: "changes-tried" }, says, flips)));
  update();
};
const whatIf = data.shares && {
  flips: new Set(), /* the numbers of the rows whose result would change */
  isBuilt: false,
  show() {
    if (!this.isBuilt) tryWeights(data.shares);
    this.isBuilt = true;
  },
};
