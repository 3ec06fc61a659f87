/* On paper: the list of the table has only the rows in view, so that rows are drawn for printing. */
const PRINTED = 200;
const filtersInWords = () => Object.entries(controls).filter(([name]) => filters[name] !== FILTERS[name]).map(([name, control]) => control.labels[0].firstChild.data + " " + (control.selectedOptions?.[0].textContent ?? filters[name])).join(", ");
const removePrinted = () => $("printed")?.remove();
const printTurns = (isPrinted) => { for (const section of document.querySelectorAll("section.turns")) section.print(isPrinted); };
addEventListener("beforeprint", () => {
  removePrinted();
  printTurns(true);
  if (state.view !== "table") return;
  const rows = shown.slice(0, PRINTED), words = filtersInWords();
  if (data.queue) rows.forEach((row) => store.see(row));
  const title = rows.length < shown.length ? "The first " + rows.length + " of " + number(shown.length, "submission") : number(shown.length, "submission");
  $("submissions").append(make("section", { id: "printed" }, make("h2", {}, title + (words ? " (" + words + ")" : "")), make("ul", { class: "rows" }, ...rows.map((row) => make("li", {}, lineOf(row))))));
});
addEventListener("afterprint", () => { removePrinted(); printTurns(false); });
