/* Markdown as elements: what models write, and nothing that could act. HTML in it stays text, and a link or an image is
   shown with its address. A backslash before a bracket stays, as in formulas. Each pattern has a bound, so that hostile text
   takes no longer than any other. */
const HIDDEN = /[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]|\udb40[\udc00-\udfff]/g;
const MOST_UNSEEN = 1000;
/* Characters that change how the text around them looks, or that nobody sees, are shown by their numbers. */
const visible = (text) => {
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (parts.length > 2 * MOST_UNSEEN) break;
    parts.push(text.slice(from, match.index), make("span", { class: "unseen" }, "U+" + match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0")));
    from = match.index + match[0].length;
  }
  return [...parts, text.slice(from)].filter((part) => part !== "");
};
const INLINE = /\\([*_`#|~>+.!-])|(?<!`)(`{1,3})(?!`)([^\n]{1,600}?)(?<!`)\2(?!`)|(!?)\[([^\][\n]{0,500})\]\(([^()\s]{0,1000})(?:\s"[^"\n]{0,200}")?\)|(\*{2,3}|__)(?=[^\s*_])([^\n]{1,600}?)(?<=\S)\7|(?<![\w*])([*_])(?=[^\s*_])([^\n]{1,600}?)(?<=[^\s*_])\9(?![\w*])|~~(?=\S)([^\n~]{1,600})~~/g;
const inline = (text, depth = 0) => {
  if (depth > 4) return visible(text);
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(INLINE)) {
    const [all, escaped, , code, image, words, address, opening, strong, , soft, struck] = match;
    nodes.push(...visible(text.slice(from, match.index)));
    from = match.index + all.length;
    if (escaped !== undefined) nodes.push(escaped);
    else if (code !== undefined) nodes.push(make("code", {}, ...visible(code)));
    else if (address !== undefined) nodes.push(...(image ? ["[image: ", ...visible(words), "] "] : inline(words, depth + 1)), make("small", { class: "address" }, image ? "" : " ", ...visible(address)));
    else if (strong !== undefined) nodes.push(make("strong", {}, ...(opening === "***" ? [make("em", {}, ...inline(strong, depth + 1))] : inline(strong, depth + 1))));
    else if (soft !== undefined) nodes.push(make("em", {}, ...inline(soft, depth + 1)));
    else nodes.push(make("s", {}, ...inline(struck, depth + 1)));
  }
  return [...nodes, ...visible(text.slice(from))];
};
const lines = (texts) => texts.flatMap((text, place) => (place ? [make("br"), ...inline(text)] : inline(text)));
const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})[ \t]*(.*)$/, HEADING = /^ {0,3}(#{1,6})\s+(\S.*)$/, RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^(\s{0,40})([-*+]|\d{1,9}[.)])\s+(?=\S)/, DIVIDER = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const cellsOf = (text) => text.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
/* A browser takes seconds to lay out tables of more rows or columns: what follows is text. */
const MOST_ROWS = 1000;
const blocks = (source, depth = 0) => {
  const nodes = [];
  let at = 0;
  const take = (test) => { const taken = []; while (at < source.length && test(source[at], taken)) taken.push(source[at++]); return taken; };
  while (at < source.length) {
    const text = source[at];
    const fence = FENCE.exec(text), heading = HEADING.exec(text), item = depth < 8 && ITEM.exec(text);
    if (!text.trim()) at++;
    else if (fence) {
      at++;
      const code = take((next) => !(next.trim().startsWith(fence[1]) && /^[`~]+$/.test(next.trim())));
      at++;
      nodes.push(make("pre", { tabindex: "0" }, fence[2] ? make("small", {}, ...visible(fence[2]), "\n") : null, make("code", {}, ...visible(code.join("\n")))));
    } else if (heading) { nodes.push(make("p", { class: "h" + heading[1].length }, ...inline(heading[2].trimEnd().replace(/\s#+$/, "").trimEnd()))); at++; }
    else if (RULE.test(text)) { nodes.push(make("hr")); at++; }
    else if (/^ {0,3}>/.test(text) && depth < 8) nodes.push(make("blockquote", {}, ...blocks(take((next) => /^ {0,3}>/.test(next)).map((next) => next.replace(/^ {0,3}> ?/, "")), depth + 1)));
    else if (item) {
      const isOrdered = /\d/.test(item[2]), items = [];
      while (at < source.length) {
        const own = ITEM.exec(source[at]);
        if (!own || own[1].length > item[1].length + 1 || own[1].length < item[1].length || RULE.test(source[at]) || /\d/.test(own[2]) !== isOrdered) break;
        const width = own[0].length, begins = source[at].slice(width);
        at++;
        const rest = take((next, taken) => (next.trim() ? /^\s/.test(next) && /^\s*/.exec(next)[0].length > item[1].length : at + 1 < source.length && /^\s+\S/.test(source[at + 1]) && /^\s*/.exec(source[at + 1])[0].length > item[1].length));
        const indent = Math.min(width, ...rest.filter((next) => next.trim()).map((next) => /^\s*/.exec(next)[0].length));
        items.push(make("li", {}, ...blocks([begins, ...rest.map((next) => next.slice(indent))], depth + 1)));
      }
      nodes.push(make(isOrdered ? "ol" : "ul", isOrdered ? { start: parseInt(item[2], 10) } : {}, ...items));
    } else if (text.includes("|") && source[at + 1]?.includes("-") && source[at + 1].length < 500 && DIVIDER.test(source[at + 1])) {
      const heads = cellsOf(text);
      at += 2;
      const rows = take((next, taken) => next.includes("|") && taken.length < MOST_ROWS).map(cellsOf);
      nodes.push(make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table in the text" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((cell) => make("th", { scope: "col" }, ...inline(cell))))),
        make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, ...inline(cell)))))))));
    } else {
      const words = take((next, taken) => next.trim() && (!taken.length || !(FENCE.test(next) || HEADING.test(next) || RULE.test(next) || ITEM.test(next) || /^ {0,3}>/.test(next))));
      nodes.push(make("p", {}, ...lines(words.map((next) => next.trim()))));
    }
  }
  return nodes;
};
const MOST_MARKDOWN = 100_000;
const LOOKS_LIKE_MARKDOWN = /[`*_#|~[\\]|^[ \t]{0,40}(?:>|(?:[-+]|\d{1,9}[.)])[ \t])/m;
/* The elements of a text in Markdown; null if it has no Markdown, or is too long or too tangled to be read in this way. */
const markdown = (text) => {
  if (text.length > MOST_MARKDOWN || text.match(HIDDEN)?.length > MOST_UNSEEN || !LOOKS_LIKE_MARKDOWN.test(text)) return null;
  try { return blocks(text.split(/\r\n|\r|\n/)); } catch { return null; }
};
