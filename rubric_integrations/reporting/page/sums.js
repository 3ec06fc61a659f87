/* Adds up scores from what Python wrote: the value that each answer counts. A value of null is left out. */
const ROUNDING = 1e-9; /* as in formula.py: a rounding error fails no pass mark */
const addUp = (parts) => {
  const isDeducting = !parts.some(([weight]) => weight > 0);
  let raw = 0, divisor = 0;
  for (const [weight, value] of parts) {
    if (value === null) continue;
    raw += weight * value;
    divisor += isDeducting ? -weight : Math.max(0, weight);
  }
  return divisor ? Math.min(1, Math.max(0, (isDeducting ? 1 : 0) + raw / divisor)) : null;
};
/* The share of the weights that has an answer: each part is a weight, and whether it has one; null if it does not apply. */
const covered = (parts) => {
  let sum = 0, total = 0;
  for (const [weight, isAnswered] of parts) {
    if (isAnswered === null) continue;
    total += Math.abs(weight);
    if (isAnswered) sum += Math.abs(weight);
  }
  return total ? Math.min(1, sum / total) : 1;
};
/* Whether a row passes: a failed judgment counts its lowest value here, which the score need not count. */
const decide = (score, lowest, coverage, [mark, minimum], passesApart) =>
  passesApart && score !== null && lowest !== null && lowest >= mark - ROUNDING && coverage >= minimum - ROUNDING;

/* The grade of each distinct row of values with these weights: its score, and whether it passes. */
const gradesWith = (shares, weights, mark) => shares.patterns.map(([passesApart, places]) => {
  const values = places.map((place, at) => [weights[at], ...shares.values[place]]);
  const score = addUp(values);
  const lowest = addUp(values.map(([weight, , low]) => [weight, low]));
  const coverage = covered(values.map(([weight, , , isAnswered]) => [weight, isAnswered]));
  return { score, passed: decide(score, lowest, coverage, [mark, shares.marks[1]], passesApart) };
});

/* What an answer counts: null for an abstention, and undefined if the run file does not tell. */
const valueOf = ({ options = [], range, values: [values] }, verdict) => {
  if (range && verdict !== "CANNOT_ASSESS") { const [low, high] = range; return (Number(verdict) - low) / (high - low); }
  const at = (options.length ? options : ["MET", "UNMET"]).indexOf(verdict);
  return at >= 0 ? values[at] : verdict === "CANNOT_ASSESS" ? null : undefined;
};
const isMet = (weight, value, minimum) => {
  const good = value === null ? 0 : weight < 0 ? 1 - value : value;
  return good > 0 && good >= minimum - ROUNDING;
};
/* The grade of a row with the reader's answers; `answerOf` gives the reader's verdict on a criterion. Returns the score
   and whether it passes (null if the run file does not tell), or the problem in words. */
const gradeWith = (criteria, grade, answerOf) => {
  if (!grade?.overruling) return { problem: "it has no answers" };
  const [mark, minimum, fixed, isPartial] = grade.overruling;
  if (fixed) return { problem: fixed };
  const parts = [], lacking = [];
  let passesApart = !isPartial;
  const isUngraded = grade.score === undefined && !grade.range;
  for (const criterion of criteria) {
    const judged = criterion.answers[last];
    if (!judged) continue;
    const { weight, required, values } = judged, [, abstention, worst, least] = values;
    const verdict = answerOf(criterion);
    const isKept = !verdict || (["answered", "abstained"].includes(judged.state) && verdict === judged.verdict);
    if (isKept) {
      /* Where nobody asked, and where a failure ended the grade, the formula lacks a value. */
      if (judged.state === "open" || (judged.state === "failed" && isUngraded)) lacking.push(criterion.name);
      if (required) passesApart &&= judged.state === "inapplicable" || (judged.state === "answered" && isMet(weight, judged.value, least));
      parts.push({ weight, value: judged.value, low: judged.state === "failed" ? worst : judged.value, isAnswered: judged.state === "inapplicable" ? null : judged.state === "answered" });
      continue;
    }
    const value = valueOf(judged, verdict);
    if (value === undefined) return { problem: 'the run file does not say what "' + verdict + '" counts' };
    if (value === null && abstention === "") return { problem: "the run file does not say what an abstention counts" };
    const counts = value === null ? abstention : value;
    if (required) passesApart &&= isMet(weight, value, least);
    parts.push({ weight, value: counts, low: counts, isAnswered: value !== null });
  }
  if (lacking.length) return { problem: "without an answer to " + lacking.join(", ") + " there is no score: answer it, too" };
  const score = addUp(parts.map(({ weight, value }) => [weight, value]));
  const lowest = addUp(parts.map(({ weight, low }) => [weight, low]));
  const coverage = covered(parts.map(({ weight, isAnswered }) => [weight, isAnswered]));
  return { score, mark, passes: mark === null || minimum === null ? null : decide(score, lowest, coverage, [mark, minimum], passesApart) };
};
