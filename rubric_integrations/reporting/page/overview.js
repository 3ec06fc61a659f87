/* The overview: which of the tables of groups is shown. */
$("group-name")?.addEventListener("input", (event) => document.querySelectorAll(".groups").forEach((table, place) => { table.hidden = String(place) !== event.target.value; }));
