/* The view for labelling: the drawn judgments one after another, without the judge's answers. */
function labellingView({ data, load, make, $, store, textsOf, titleOf, linkOf, changed, save }) {
  const queue = data.queue.map(([row, name, requirement, sampled, answers]) => ({ row: data.rows[row], criterion: { name, requirement }, sampled, answers }));
  const labelOf = (item) => store.own(item.row, item.criterion);
  const labelled = () => queue.filter(labelOf).length;
  const notes = new Map(); /* notes on judgments that have no answer yet */
  /* An answer counts only for the judgment that is shown: the texts of the next one may still be unpacked. */
  let at = null, openings = 0, shown = null;

  const say = (words) => { $("label-status").textContent = words; };
  const key = (name) => make("kbd", { "aria-hidden": "true" }, name);
  const button = (words, shortcut, shown, onclick) => make("button", { type: "button", "aria-keyshortcuts": shortcut, onclick }, key(shown), " ", words);
  const move = (to) => { at = Math.max(0, Math.min(to, queue.length)); show(); };
  const answer = (verdict) => {
    const item = queue[at], before = labelOf(item);
    if (!item || shown !== item || !verdict) return;
    /* An answer that stays the same stays blind. */
    const blind = before?.verdict === verdict ? before.blind : !store.hasSeen(item.row);
    store.set(item.row, item.criterion, { verdict, reason: before?.reason || notes.get(item) || "", sampled: item.sampled, blind });
    changed();
    say(verdict + " recorded. " + labelled() + " of " + queue.length + " labelled.");
    move(at + 1);
  };
  const note = (item, words) => {
    notes.set(item, words);
    const label = labelOf(item);
    if (label) { store.set(item.row, item.criterion, { ...label, reason: words }); changed(); }
  };
  const leave = (event) => { if (["Enter", "Escape"].includes(event.key)) { event.preventDefault(); event.stopPropagation(); event.target.blur(); $("label").focus(); } };

  const askName = () => {
    const input = make("input", { id: "label-rater", required: "", autocomplete: "name", size: "24" });
    const begin = (event) => { event.preventDefault(); if (input.value.trim()) { store.setRater(input.value); at = null; changed(); show(); } };
    $("label-question").replaceChildren(
      make("h2", { id: "label-title" }, queue.length + " judgments to label"),
      make("p", {}, "You see what was graded and one criterion after another, and not what the judge answered: who sees it tends to agree with it. Your answers stay in this browser until you export them."),
      make("form", { class: "choices", onsubmit: begin }, make("label", { for: "label-rater" }, "Your name, which each of your labels carries", input), make("button", {}, "Begin")));
    $("label-texts").replaceChildren();
    input.focus();
  };

  const choices = ({ answers }, chosen) => {
    const typed = make("input", { id: "label-typed", size: "14", autocomplete: "off" });
    typed.value = chosen && !answers.includes(chosen) ? chosen : "";
    return [
      make("div", { role: "group", "aria-labelledby": "label-words", class: "choices" }, ...answers.map((verdict, place) =>
        make("button", { type: "button", class: "choice", "aria-pressed": String(chosen === verdict), "aria-keyshortcuts": place < 9 ? String(place + 1) : null, onclick: () => answer(verdict) }, place < 9 ? key(String(place + 1)) : null, " ", verdict))),
      /* The numbers of a long scale are not offered, and a run of an earlier version does not have the options. */
      answers.length ? null : make("form", { class: "typed", onsubmit: (event) => { event.preventDefault(); answer(typed.value.trim()); } },
        make("label", { for: "label-typed" }, "your answer (t), or CANNOT_ASSESS", typed), make("button", {}, "Answer")),
    ];
  };

  const showItem = async (item) => {
    const number = ++openings, place = at;
    const texts = await load(item.row);
    if (number !== openings) return;
    const label = labelOf(item);
    const input = make("input", { id: "label-note", autocomplete: "off", onkeydown: leave, oninput: () => note(item, input.value) });
    input.value = label?.reason || notes.get(item) || "";
    $("label-question").replaceChildren(
      make("h2", { id: "label-title" }, "Judgment " + (place + 1) + " of " + queue.length, make("small", {}, " " + titleOf(item.row))),
      make("progress", { max: queue.length, value: labelled(), "aria-label": "labelled" }), make("small", {}, " " + labelled() + " of " + queue.length + " labelled by " + store.rater),
      make("p", { id: "label-words" }, make("b", { class: "key" }, item.criterion.name), make("span", { class: "words" }, item.criterion.requirement)),
      ...choices(item, label?.verdict).filter(Boolean),
      make("div", { class: "choices" }, make("label", { for: "label-note" }, "note (n)", input),
        button("skip", "s", "s", () => move(at + 1)), button("back", "Backspace", "\u2190", () => move(at - 1)), button("export", "e", "e", save)));
    $("label-texts").replaceChildren(...textsOf(texts));
    shown = item;
    scrollTo(0, 0);
    $("label").focus();
  };

  const showEnd = async () => {
    const number = ++openings;
    const open = queue.filter((item) => !labelOf(item));
    const differing = [];
    if (!open.length)
      for (const item of queue) {
        const { criteria } = await load(item.row);
        if (number !== openings) return;
        const judged = criteria.find(({ name, requirement }) => name === item.criterion.name && requirement === item.criterion.requirement)?.answers[0];
        const label = labelOf(item);
        if (judged?.verdict !== label.verdict) differing.push(make("li", {}, make("a", { href: linkOf(item.row) }, titleOf(item.row)), ", " + item.criterion.name + ": you " + label.verdict + ", the judge " + (judged?.verdict ?? "nothing")));
      }
    /* Whoever reads what the judge answered elsewhere is no longer blind. */
    if (!open.length) queue.forEach((item) => store.see(item.row));
    $("label-question").replaceChildren(
      make("h2", { id: "label-title" }, open.length ? open.length + " of " + queue.length + " are not labelled yet" : "All " + queue.length + " are labelled"),
      make("div", { class: "choices" }, open.length ? button("label the rest", "1", "1", () => move(queue.indexOf(open[0]))) : null, button("back", "Backspace", "\u2190", () => move(at - 1)), button("export", "e", "e", save)),
      ...(open.length ? [] : [make("p", {}, "You and the judge differ on " + differing.length + " of " + queue.length + ". Change an answer only if it was a mistake: from now on, it is not blind."), make("ul", {}, ...differing)]));
    $("label-texts").replaceChildren();
    $("label").focus();
  };

  function show() {
    shown = null;
    if (!store.rater) { askName(); return; }
    if (at === null) at = queue.findIndex((item) => !labelOf(item));
    if (at < 0) at = queue.length;
    if (at < queue.length) showItem(queue[at]);
    else showEnd();
  }

  addEventListener("keydown", (event) => {
    if ($("label").hidden || !store.rater || event.target.closest("input, textarea, select") || event.altKey || event.ctrlKey || event.metaKey) return;
    const item = queue[at];
    const act = {
      n: () => $("label-note")?.focus(), t: () => $("label-typed")?.focus(), s: () => move(at + 1), e: save,
      Backspace: () => move(at - 1), ArrowLeft: () => move(at - 1), ArrowRight: () => move(at + 1),
    }[event.key] || (/^[1-9]$/.test(event.key) && (item ? item.answers[Number(event.key) - 1] && (() => answer(item.answers[Number(event.key) - 1])) : event.key === "1" && (() => $("label-question").querySelector("[aria-keyshortcuts='1']")?.click())));
    if (act) { event.preventDefault(); act(); }
  });
  return { show };
}
