/* The data of the page: the index, the texts in blocks, and elements made of them. */
const unpack = async (element) => {
  const letters = atob(element.textContent);
  const packed = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) packed[at] = letters.charCodeAt(at);
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
};
const data = await unpack(document.getElementById("data"));
const two = data.runs.length > 1;
const last = two ? 1 : 0;
const $ = (id) => document.getElementById(id);
/* Of many runs, two are shown at a time, as if there were no others. These are their places among the runs with rows. */
const allRuns = data.runs;
let shownRuns = allRuns.map((_, run) => run).slice(-2);
const changedPlaces = ([before, after]) => (before?.cells || []).flatMap((cell, place) => {
  const [one, other] = [cell, after?.cells?.[place]].map((value) => data.answers[value]);
  return one?.[1] && other?.[1] && one[0] !== "failed" && other[0] !== "failed" && one[1] !== other[1] ? [place] : [];
});
const showRuns = (runs) => {
  shownRuns = runs;
  data.runs = runs.map((run) => allRuns[run]);
  for (const row of data.rows) {
    row.grades = runs.map((run) => row.allGrades[run]);
    row.changed = data.kind === "criteria" ? changedPlaces(row.grades) : [];
  }
};
if (allRuns.length > 2) {
  for (const row of data.rows) row.allGrades = row.grades;
  showRuns(shownRuns);
}

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
  const stored = block.rows[row.at[1]];
  const grades = shownRuns.map((run) => stored.grades[run]);
  const texts = { ...stored, ...(grades[last] || grades[0])?.own };
  const criteria = new Map();
  grades.forEach((grade, run) => (grade?.answers || []).forEach(([place, state, verdict, good, reason, words, value, more]) => {
    const [name, requirement, weight, required, tags, values, options, range] = block.criteria[place];
    const key = JSON.stringify([name, requirement]);
    if (!criteria.has(key)) criteria.set(key, { key, name, requirement, weight, required, tags, options, range, answers: [] });
    criteria.get(key).answers[run] = { state, verdict, good, reason, words, value, points: value === null ? null : value * weight, weight, required, values, options, range, more: more || {} };
  }));
  const sides = grades.map((grade) => grade && { ...stored, ...grade.own });
  return { ...texts, sides, grades: row.grades.map((grade, run) => grade && { ...grade, ...grades[run] }), criteria: [...criteria.values()] };
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
