/* What the page calls a row, an answer and a score. */
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
