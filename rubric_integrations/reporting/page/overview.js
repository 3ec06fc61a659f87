/* The overview: which of the tables of groups is shown, and what a page without texts leaves out. */
$("group-name")?.addEventListener("input", (event) => document.querySelectorAll(".groups").forEach((table, place) => { table.hidden = String(place) !== event.target.value; }));
/* A label needs the texts of its submission. */
if (data.redacted) document.body.dataset.redacted = "yes";
