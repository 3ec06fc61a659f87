/* The overview: which of the tables of groups is shown, and what a page without texts leaves out. */
$("group-name")?.addEventListener("input", (event) => document.querySelectorAll(".groups").forEach((table, place) => { table.hidden = String(place) !== event.target.value; }));
/* Where people and the judge differ: on one criterion, or on one with these answers. */
$("differ")?.addEventListener("input", ({ target: { value } }) => document.querySelectorAll(".differences [data-kind]").forEach((item) => { item.hidden = Boolean(value) && !(item.dataset.kind + "\n").startsWith(value.replace(/\n+$/, "") + "\n"); }));
/* A label needs the texts of its submission. */
if (data.redacted) document.body.dataset.redacted = "yes";
