/* Reads an answer that was typed: returns its `verdict`, or the `problem` in words. Numbers may have a decimal comma, as in
   `read_verdict` of questions.py; with three digits behind it, a comma may separate thousands. A run of an earlier version
   knows neither the options nor the range. */
function readAnswer(typed, { options = [], range = null }) {
  const text = typed.trim();
  const known = [...options, "CANNOT_ASSESS"];
  const verdict = known.find((option) => option.toLowerCase() === text.toLowerCase());
  if (verdict) return { verdict };
  if (!range) return options.length ? { problem: '"' + text + '" is not possible: it takes one of ' + known.join(", ") } : { verdict: text };
  const [low, high, whole] = range;
  const number = /^[+-]?(\d+\.?\d*|\.\d+|0?,\d+|\d+,(\d{1,2}|\d{4,}))$/.test(text) ? Number(text.replace(",", ".")) : NaN;
  if (number >= low && number <= high && (!whole || Number.isInteger(number))) return { verdict: String(number) };
  return { problem: '"' + text + '" is not possible: it takes ' + (whole ? "a whole number" : "a number") + " from " + low + " to " + high + ", or CANNOT_ASSESS" };
}
/* People's answers to the criteria, stored in this browser under a key of these runs. A label belongs to one rater, to one
   row, and to one criterion of it by its name and its requirement: other rows may use the name for another one. */
function labelStore(data, load) {
  const place = "rubric-answers-" + data.key, placeOfRater = "rubric-rater";
  const last = data.runs.length - 1;
  const read = (name) => { try { return JSON.parse(localStorage.getItem(name)); } catch { return null; } };
  const write = (name, value) => { try { localStorage.setItem(name, JSON.stringify(value)); } catch { /* without storage, labels last until the page is closed */ } };
  const rowKey = (row) => JSON.stringify([row.id, row.copy || 1]);
  const judgmentKey = (label) => JSON.stringify([label.id, label.copy || 1, label.criterion, label.requirement]);
  const keyOf = (label) => JSON.stringify([judgmentKey(label), label.rater]);
  const rows = new Map(data.rows.map((row) => [rowKey(row), row]));
  const stored = read(place) || { labels: [], seen: [] };
  let labels = new Map(stored.labels.map((label) => [keyOf(label), label]));
  /* The rows whose answers by the judge a rater has read: a label of them is not blind. */
  let seen = new Set(stored.seen);
  let rater = read(placeOfRater) || "";
  let ofRows = new Map();
  const keep = () => {
    write(place, { labels: [...labels.values()], seen: [...seen] });
    ofRows = new Map();
    for (const label of labels.values()) if (label.rater === rater) { const key = rowKey(label); ofRows.set(key, [...(ofRows.get(key) || []), label]); }
  };
  const draft = (row, criterion) => ({ id: row.id, copy: row.copy, criterion: criterion.name, requirement: criterion.requirement, rater });
  const own = (row, criterion) => labels.get(keyOf(draft(row, criterion)));
  const criterionOf = (texts, label) => texts.criteria.find((criterion) => criterion.name === label.criterion && criterion.requirement === label.requirement);
  keep();
  return {
    get rater() { return rater; },
    /* Labels that were made before their rater had a name belong to the rater who then gives one. */
    setRater(name) {
      const before = rater;
      rater = name.trim();
      write(placeOfRater, rater);
      if (!before) {
        for (const [key, label] of [...labels]) if (!label.rater) { labels.delete(key); labels.set(keyOf({ ...label, rater }), { ...label, rater }); }
        seen = new Set([...seen].map((key) => { const [who, row] = JSON.parse(key); return JSON.stringify([who || rater, row]); }));
      }
      keep();
    },
    own,
    ofRow: (row) => ofRows.get(rowKey(row)) || [],
    /* Without a verdict, the label is deleted. */
    set(row, criterion, label) {
      const key = keyOf(draft(row, criterion));
      if (label.verdict) labels.set(key, { ...draft(row, criterion), reason: "", ...label });
      else labels.delete(key);
      keep();
    },
    see(row) {
      const key = JSON.stringify([rater, rowKey(row)]);
      if (!seen.has(key)) { seen.add(key); keep(); }
    },
    hasSeen: (row) => seen.has(JSON.stringify([rater, rowKey(row)])),
    clear() { labels = new Map(); keep(); },
    get counts() {
      const counts = new Map();
      for (const label of labels.values()) counts.set(label.rater, (counts.get(label.rater) || 0) + 1);
      return counts;
    },
    /* How many judgments have labels of several raters, and on how many of these they differ. */
    get shared() {
      const answers = new Map();
      for (const label of labels.values()) { const key = judgmentKey(label); answers.set(key, [...(answers.get(key) || []), label.verdict]); }
      const several = [...answers.values()].filter((verdicts) => verdicts.length > 1);
      return { judgments: several.length, disagreements: several.filter((verdicts) => new Set(verdicts).size > 1).length };
    },
    async lines() {
      const lines = [];
      for (const row of data.rows) {
        const ofRow = [...labels.values()].filter((label) => rowKey(label) === rowKey(row));
        if (!ofRow.length) continue;
        const texts = await load(row);
        const submission = Object.fromEntries(["response", "thinking", "query", "reference", "context"].filter((name) => texts[name]).map((name) => [name, texts[name]]));
        for (const label of ofRow) {
          const judged = criterionOf(texts, label)?.answers[last]?.verdict ?? null;
          const { id, copy, criterion, requirement, verdict, reason, sampled, blind } = label;
          lines.push(JSON.stringify({ id, copy, criterion, requirement, verdict, judged, reason, rater: label.rater || undefined, sampled, blind, digest: texts.digest, submission }));
        }
      }
      return lines;
    },
    /* Add the labels of an exported file. The reader's own labels of this page stay as they are. */
    async merge(text) {
      let added = 0, unknown = 0; /* an impossible answer belongs to no judgment either */
      for (const line of text.split("\n").filter((line) => line.trim())) {
        let label = null;
        try { label = JSON.parse(line); } catch { /* counted below */ }
        const row = label && rows.get(JSON.stringify([String(label.id), label.copy || 1]));
        if (!row || typeof label.verdict !== "string" || !label.verdict) { unknown++; continue; }
        const criterion = criterionOf(await load(row), label);
        const { verdict } = criterion ? readAnswer(label.verdict, criterion) : {};
        if (!verdict) { unknown++; continue; }
        const sampled = ["random", "by_verdict"].includes(label.sampled) ? label.sampled : "chosen";
        const entry = { ...draft(row, { name: label.criterion, requirement: label.requirement }), verdict, reason: String(label.reason || ""), rater: String(label.rater || ""), sampled, blind: label.blind === true };
        if (entry.rater === rater && labels.has(keyOf(entry))) continue;
        labels.set(keyOf(entry), entry);
        added++;
      }
      keep();
      return { added, unknown };
    },
  };
}
