/* Many runs: the baseline of the marks, and the choice of two runs to compare. */
const many = $("view-many");
let picked = null; /* the first of two runs */
const pick = (run) => {
  if (picked === null || picked === run) picked = picked === run ? null : run;
  else {
    const [a, b] = [picked, run].sort((one, other) => one - other).map(String);
    picked = null;
    go({ view: "compare", a, b });
  }
  for (const button of many.querySelectorAll(".pick")) button.setAttribute("aria-pressed", String(Number(button.dataset.run) === picked));
  for (const column of many.querySelectorAll(".of-run")) column.classList.toggle("picked", Number(column.dataset.run) === picked);
  $("picked").textContent = picked === null ? "A click on two runs compares them." : "Run " + (picked + 1) + " is chosen. Choose another one to compare it with.";
};
if (many) {
  $("base").addEventListener("input", () => { many.dataset.base = $("base").value; });
  for (const element of many.querySelectorAll(".pick, .of-run")) element.addEventListener("click", () => pick(Number(element.dataset.run)));
}
