"""Make the files of loadsim/model/content/data/: documents, sheets and pictures of LoadSim's published sizes.

They are made once and shipped: runs need no office library, and messages do not depend on its version. Run this again
only to change them: python tools/make_attachments.py
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime

import docx
import openpyxl
from docx.oxml.ns import qn
from openpyxl.styles import Font
from PIL import Image, ImageDraw

from loadsim.model.content.prose import DATA, WORDS, Writer

VARIANTS = 4
SEED = 1997
WRITTEN = datetime(2025, 10, 1, 9, 0, 0, tzinfo=UTC)

DOCUMENT_BYTES = 16 * 1024
SHEET_BYTES = 15 * 1024
OBJECT_BYTES = 30 * 1024
PICTURE_WIDTH, PICTURE_HEIGHT = 216, 199  # 54 bytes of header, 1,024 of palette, 42,984 of pixels: 43.03 KB


def repacked(package: bytes) -> bytes:
    """Return an Office package with fixed dates in its properties and archive, at zlib's highest compression."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename == "docProps/core.xml":
                content = re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", f"{WRITTEN:%Y-%m-%dT%H:%M:%SZ}".encode(), content)
            info = zipfile.ZipInfo(entry.filename, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 0
            new.writestr(info, content, compresslevel=9)
    return out.getvalue()


def nearest(make: Callable[[int], bytes], wanted_bytes: int) -> bytes:
    """Return the largest of make(1), make(2), ... that fits the wanted size; sizes grow with the number."""
    low, high = 1, 4096
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(make(middle)) <= wanted_bytes else (low, middle)
    return make(low)


def document(variant: int, sentences: int) -> bytes:
    """Return a paper with this number of sentences, headings, a table and a list."""
    writer = Writer(SEED, "document", variant)
    paper = docx.Document()
    keep_styles(paper)
    paper.core_properties.title = writer.sentence("{Modifier} {head}, project {project}")
    paper.core_properties.author = writer.sentence("{first} {last}")
    paper.add_heading(paper.core_properties.title, 1)
    table = paper.add_table(rows=0, cols=3)
    for _ in range(6 + variant):
        for cell, pattern in zip(table.add_row().cells, ("{Modifier} {head}", "{number}", "{amount}"), strict=True):
            cell.text = writer.sentence(pattern)
    paragraph = None
    for at in range(sentences):
        if at % 24 == 0:
            paper.add_heading(writer.sentence("{Modifier} {head}"), 2)
        if at % 24 >= 20:
            paper.add_paragraph(writer.sentence(writer.word(WORDS["item"])), style="List Bullet")
            continue
        if at % 6 == 0 or paragraph is None:
            paragraph = paper.add_paragraph()
        paragraph.add_run(writer.sentence(writer.word(WORDS["sentence"])) + " ")
    out = io.BytesIO()
    paper.save(out)
    return repacked(out.getvalue())


def keep_styles(paper: docx.document.Document) -> None:
    """Drop unused parts of python-docx's template, which alone would exceed 16 KB."""
    used = {"Normal", "DefaultParagraphFont", "TableNormal", "NoList", "Heading1", "Heading2", "ListBullet"}
    styles = paper.styles.element
    for style in list(styles.iterchildren(qn("w:style"))):
        if style.get(qn("w:styleId")) not in used:
            styles.remove(style)
            continue
        for link in list(style.iterchildren(qn("w:link"))):
            style.remove(link)
    for owner in (paper.part, paper.part.package):
        for name, relation in list(owner.rels.items()):
            if relation.reltype.endswith(("/stylesWithEffects", "/thumbnail", "/customXml")):
                del owner.rels[name]


def sheet(variant: int, stream: str, rows: int) -> bytes:
    """Return a list of orders with this number of rows, a formula in each, and a sum."""
    writer = Writer(SEED, stream, variant)
    book = openpyxl.Workbook()
    page = book.active
    page.title = writer.sentence("{Project}")
    book.properties.creator = writer.sentence("{first} {last}")
    page.append(["Reference", "Company", "Article", "Pieces", "Price", "Total", "Due"])
    for cell in page[1]:
        cell.font = Font(bold=True)
    for row in range(2, rows + 2):
        page.append(
            [
                writer.sentence("{reference}"),
                writer.sentence("{company}"),
                writer.sentence("{adjective} {plural}"),
                1 + writer.below(10 ** (1 + writer.below(3))),
                writer.below(100_000) / 100,
                f"=D{row}*E{row}",
                writer.sentence("{date}"),
            ]
        )
    page.append([None, None, None, None, "Sum", f"=SUM(F2:F{rows + 1})", None])
    for column, width in zip("ABCDEFG", (12, 24, 24, 9, 11, 13, 14), strict=True):
        page.column_dimensions[column].width = width
    out = io.BytesIO()
    book.save(out)
    return repacked(out.getvalue())


def picture(variant: int) -> bytes:
    """Return a chart on a shaded background, uncompressed, with 8 bits per pixel."""
    writer = Writer(SEED, "picture", variant)
    image = Image.new("P", (PICTURE_WIDTH, PICTURE_HEIGHT))
    tints = [writer.below(160) for _ in range(3)]
    palette = [min(255, tint + shade // 2) for shade in range(192) for tint in tints]
    palette += [writer.below(256) for _ in range(3 * 64)]
    image.putpalette(palette)
    pixels = image.load()
    for y in range(PICTURE_HEIGHT):
        for x in range(PICTURE_WIDTH):
            pixels[x, y] = min(191, (x + 2 * y) * 180 // (PICTURE_WIDTH + 2 * PICTURE_HEIGHT) + (x * 7 + y * 13) % 5)
    pen = ImageDraw.Draw(image)
    for y in range(20, 180, 20):
        pen.line((20, y, 205, y), fill=190)
    if variant % 2 == 0:
        for at in range(10):
            pen.rectangle((24 + 18 * at, 175 - writer.below(140), 36 + 18 * at, 179), fill=192 + at, outline=0)
    else:
        for line in range(4):
            points = [(24 + 18 * at, 30 + writer.below(140)) for at in range(11)]
            pen.line(points, fill=200 + line, width=2)
    pen.line((20, 10, 20, 180, 208, 180), fill=0, width=2)
    pen.text((60, 184), writer.sentence("{Project}, {month}"), fill=0)
    out = io.BytesIO()
    image.save(out, "BMP")
    return out.getvalue()


def main() -> None:
    """Write all files, and print their sizes."""
    DATA.mkdir(exist_ok=True)
    for at in range(VARIANTS):
        made = {
            f"paper-{at + 1}.docx": nearest(lambda count, at=at: document(at, count), DOCUMENT_BYTES),
            f"sheet-{at + 1}.xlsx": nearest(lambda count, at=at: sheet(at, "sheet", count), SHEET_BYTES),
            f"object-{at + 1}.xlsx": nearest(lambda count, at=at: sheet(at, "object", count), OBJECT_BYTES),
            f"chart-{at + 1}.bmp": picture(at),
        }
        for name, content in made.items():
            (DATA / name).write_bytes(content)
            print(f"{name:16} {len(content):7,} bytes")


if __name__ == "__main__":
    main()
