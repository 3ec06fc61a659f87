"""Opens text files, and refuses binary files with the command that unpacks or exports them (`BINARY_FORMATS`)."""

from __future__ import annotations

import codecs
import io
import re
import shlex
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple, TextIO, cast


class ResponsesError(ValueError):
    """Raised if a file of responses cannot be read at all. A single row that cannot be read only gets an `error`."""


class LayoutError(ValueError):
    """Raised if a file is not text, is damaged, or if its rows cannot be found with certainty.

    The message does not name the file, because the caller adds the name.
    """


MAX_PARSED = 500_000_000
"""The largest number of characters (or of unpacked bytes) that are read into memory at a time.

It applies to a JSON file, a line, a sample and a spreadsheet. A small archive can unpack to any size. Parsed JSON needs
several times this memory.
"""


SAVE_SHEET = "save the sheet as CSV (UTF-8)"
"""Advice for a spreadsheet that is not read."""


class BinaryFormat(NamedTuple):
    """A format of files that are not text, even if they contain only ASCII, such as PDF.

    Attributes:
        name: The name of the format, with its article.
        suffixes: The suffixes of such files.
        remedy: Advice with a command. `{file}` is the path of the file, `{unpacked}` is the path of the unpacked file,
            and `{stem}` is the path of an exported file without its suffix.
        mark: A regular expression that matches the first bytes of such files. None if nothing marks them.
    """

    name: str
    suffixes: tuple[str, ...]
    remedy: str
    mark: bytes | None = None


def _run(imports: str, code: str, suffix: str) -> str:
    """Return a command that exports a file with Python. In the code, `r` is the file and `w` is the exported file."""
    return f'export it: `python -c "import sys, {imports}; r, w = sys.argv[1:]; {code}" {{file}} {{stem}}{suffix}`'


def _pandas(frame: str, imports: str = "pandas") -> str:
    return _run(imports, f"pandas.{frame}.to_json(w, orient='records', lines=True)", ".jsonl")


def _arrow(read: str) -> str:
    return _run("pyarrow as a, pyarrow.orc, pyarrow.parquet as p", f"p.write_table(a.{read}, w)", ".parquet")


_GZIP, _BZIP2, _XZ = rb"\x1f[\x8b\x9d]", rb"BZh[1-9](?:1AY&SY|\x17rE8)", rb"\xfd7zXZ|\]\x00\x00"
_ZIP, _OLE = rb"PK(?:\x03\x04|\x05\x06|\x07\x08)", rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

BINARY_FORMATS = (
    BinaryFormat("a gzip file", (".gz", ".z"), "unpack it: `gzip -dc {file} > {unpacked}`", _GZIP),
    BinaryFormat("a bzip2 file", (".bz2",), "unpack it: `bzip2 -dc {file} > {unpacked}`", _BZIP2),
    BinaryFormat("an xz file", (".xz", ".lzma"), "unpack it: `xz -dc {file} > {unpacked}`", _XZ),
    BinaryFormat("a Zstandard file", (".zst",), "unpack it: `zstd -dc {file} > {unpacked}`", rb"\x28\xb5\x2f\xfd"),
    BinaryFormat("an LZ4 file", (".lz4",), "unpack it: `lz4 -dc {file} > {unpacked}`", rb"\x04\x22\x4d\x18"),
    BinaryFormat("a Brotli file", (".br",), "unpack it: `brotli -dc {file} > {unpacked}`"),
    BinaryFormat(
        "a ZIP archive", (".zip",),
        "unpack it: `unzip {file}`; or rename it, if it is a document such as `.xlsx` or `.docx`", _ZIP,
    ),
    BinaryFormat(
        "a tar archive", (".tar", ".tgz", ".tbz2", ".txz"), "unpack it: `tar -xf {file}`",
        b"|".join((rb".{257}ustar(?:\x00|  \x00)", _GZIP, _BZIP2, _XZ)),
    ),
    BinaryFormat("a 7-Zip archive", (".7z",), "unpack it: `7z x {file}`", rb"7z\xbc\xaf\x27\x1c"),
    BinaryFormat("a RAR archive", (".rar",), "unpack it: `unrar x {file}`", rb"Rar!\x1a\x07"),
    BinaryFormat(
        "a PDF file", (".pdf",), "extract its text: `pdftotext {file} {stem}.txt`",
        # A text may begin with `%PDF`. A PDF file has objects, or its second line marks it as binary.
        rb"(?:\xef\xbb\xbf)?\s*%PDF-\d\.\d\s*?[\r\n]\s*(?:%[\x80-\xff]{4}|.*?(?:\d \d+ obj\b|%%EOF))",
    ),
    BinaryFormat(
        "a Rich Text file", (".rtf",), "extract its text: `pandoc -t plain -o {stem}.txt {file}`", rb"\{\\rtf\d",
    ),
    BinaryFormat(
        "a text document", (".docx", ".odt", ".epub"), "extract its text: `pandoc -t plain -o {stem}.txt {file}`", _ZIP,
    ),
    BinaryFormat(
        "a Microsoft Office file of before 2007", (".doc",),
        "extract its text: `soffice --headless --convert-to txt:Text {file}`, or save a sheet as CSV (UTF-8)", _OLE,
    ),
    BinaryFormat(
        "a presentation", (".pptx", ".ppt", ".odp"),
        "export it as PDF, and extract its text: `pdftotext {stem}.pdf {stem}.txt`", _ZIP + b"|" + _OLE,
    ),
    BinaryFormat("a spreadsheet", (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), SAVE_SHEET, _ZIP + b"|" + _OLE),
    BinaryFormat("a Parquet file", (), "rename it, with the suffix `.parquet`", rb"PAR1[\x00-\x08\x0e-\x1f]"),
    BinaryFormat(
        "an Arrow file", (".feather", ".ipc"), _arrow("ipc.open_file(r).read_all()"), rb"ARROW1\x00\x00",
    ),
    BinaryFormat("an Arrow stream", (".arrow", ".arrows"), _arrow("ipc.open_stream(r).read_all()"), rb"\xff{4}"),
    BinaryFormat("an ORC file", (".orc",), _arrow("orc.read_table(r)"), rb"ORC[\x00-\x1f]{2}"),
    BinaryFormat("an Avro file", (".avro",), "export its rows as JSON Lines", rb"Obj\x01"),
    BinaryFormat("an HDF5 file", (".h5", ".hdf5", ".hdf"), _pandas("read_hdf(r)"), rb"\x89HDF\r\n"),
    BinaryFormat("a Stata file", (".dta",), _pandas("read_stata(r)"), rb"<stata_dta><header>"),
    BinaryFormat("an SPSS file", (".sav",), _pandas("read_spss(r)"), rb"\$FL[23]@"),
    BinaryFormat(
        "a pickle, which can run any code", (".pkl", ".pickle", ".joblib"),
        _pandas("read_pickle(r)") + ", only if you trust it", rb"\x80[\x02-\x05]",
    ),
    BinaryFormat(
        "a NumPy array", (".npy",), _pandas("DataFrame({{'response': numpy.load(r)}})", "pandas, numpy"), rb"\x93NUMPY",
    ),
    BinaryFormat(
        "an SQLite database", (".sqlite", ".sqlite3"),
        "export it: `sqlite3 -json {file} 'SELECT id, response FROM answers' > {stem}.json`", rb"SQLite format 3\x00",
    ),
    BinaryFormat(
        "an image, a recording or a video",
        (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".mp3", ".wav", ".ogg", ".m4a", ".mp4"),
        'make it an attachment of a row: `{{"response": ..., "attachments": [{{"path": ...}}]}}`',
        rb"\x89PNG\r|\xff\xd8\xff|GIF8[79]a.[\x00-\x1f].[\x00-\x1f]|RIFF.{4}W(?:AVE|EBP)|OggS\x00|\x00\x00..ftyp",
    ),
)  # fmt: skip
"""The binary formats. If the suffix of a file is not known, the first format whose mark matches is used."""


def binary_problem(path: Path, head: bytes = b"") -> str | None:
    """Return why a file is not read as text, with advice, or None for any other file.

    Args:
        path: The path of the file, whose suffix may name a binary format.
        head: The first bytes of the file. Empty if they are not known.

    Example:
        >>> binary_problem(Path("answers.jsonl.gz"))
        '`.gz` files are not supported: unpack it: `gzip -dc answers.jsonl.gz > answers.jsonl`'
    """
    suffix = path.suffix.lower()
    matching = [known for known in BINARY_FORMATS if known.mark and re.match(known.mark, head, re.DOTALL)]
    named = next((known for known in BINARY_FORMATS if suffix in known.suffixes), None)
    known = named if named in matching else next(iter(matching), named)
    if known is None:
        return None
    stem = unpacked = path.with_suffix("")
    if known is not named:  # The suffix is kept, and no file is replaced.
        stem = path.with_name(f"{path.stem}-unpacked")
        unpacked = path.with_name(f"{stem.name}{path.suffix}")
    paths = {"file": path, "stem": stem, "unpacked": unpacked}
    remedy = known.remedy.format_map({name: shlex.quote(str(value)) for name, value in paths.items()})
    return f"`{suffix}` files are not supported: {remedy}" if known is named else f"is {known.name}, not text: {remedy}"


# The largest number of bytes that decide whether a file is binary.
_HEAD = 65_536
# Terminals use some control characters, such as the escape before a color.
_NOT_IN_TEXT = re.compile("[\0-\x07\x0e-\x1a\x1c-\x1f\x7f]")


def open_text(path: Path, encoding: str | None = None, newline: str | None = None) -> TextIO:
    """Open a text file. Its encoding is UTF-8, or UTF-16 if the file has a byte order mark, unless `encoding` is set.

    Raises:
        LayoutError: The file has a binary format.
        OSError: The file cannot be opened.
    """
    # The first bytes are read without a second opening, because a pipe could not be read again from its beginning.
    file = io.BufferedReader(io.FileIO(path), _HEAD)
    try:
        head = file.peek(_HEAD)
        if (problem := binary_problem(path, head)) is not None:
            raise LayoutError(problem)
        if encoding is None:
            encoding = "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
        return io.TextIOWrapper(file, encoding, newline=newline)
    except BaseException:
        file.close()
        raise


def first_text(file: TextIO) -> str:
    """Return the beginning of a text file that was just opened. The file is then read from its beginning."""
    head = cast("io.BufferedReader", file.buffer).peek(_HEAD)
    return head.decode(file.encoding, "ignore")


def refuse_controls(text: str) -> None:
    """Refuse binary content that was decoded as text, by the share of its control characters.

    Any bytes can be decoded by encodings such as Latin-1. A single control character may be a mistake in a text.

    Raises:
        LayoutError: At least two of the characters, and more than 2 %, are control characters.
    """
    controls = len(_NOT_IN_TEXT.findall(text))
    if controls > 1 and controls * 50 > len(text):
        raise LayoutError(
            f"is not text in this encoding: {controls:,} of its {len(text):,} characters are control characters, as if "
            "it were binary: export its text, or name the encoding of a text, such as `encoding='utf-16-le'` "
            "(`--encoding utf-16-le`)"
        )


def read_lines(file: TextIO) -> Iterator[str]:
    """Yield the lines of a text file.

    Raises:
        LayoutError: A line has more than 500,000,000 characters, for example because the file has no line breaks.
    """
    for number in count(1):
        if not (line := file.readline(MAX_PARSED + 1)):
            return
        if len(line) > MAX_PARSED:
            raise LayoutError(f"line {number} has more than {MAX_PARSED:,} characters: write each row on a line")
        yield line


def read_text(path: Path, encoding: str | None) -> str:
    """Return the text of a file.

    Raises:
        LayoutError: The text has more than 500,000,000 characters, or a part of the content is binary.
    """
    with open_text(path, encoding) as file:
        text = file.read(MAX_PARSED + 1)
    if len(text) > MAX_PARSED:
        raise LayoutError(
            f"has more than {MAX_PARSED:,} characters, which are read as one: write a `.jsonl` file, with each row on "
            "a line"
        )
    for start in range(0, len(text), _HEAD):
        refuse_controls(text[start : start + _HEAD])
    return text


def how_to_encode(suffix: str) -> str:
    """Return advice on how to save a text file with a suffix, such as `.csv`, in UTF-8."""
    return "save it as UTF-8" + (" (in Excel: Save As, `CSV UTF-8`)" if suffix in (".csv", ".tsv") else "")
