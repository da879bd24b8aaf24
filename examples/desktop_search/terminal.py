"""Search a folder in the terminal. The order of results learns from what is opened."""

from documents import Document
from folder import Folder
from options import read_options
from search import Search

HELP = "words to search for, the number of what to open, :off, :on, :reset, :report, or nothing to end > "


def main() -> None:
    options = read_options("Search a folder in the terminal.")
    folder = Folder(options.folder)
    search = Search(folder, options.home, options.credentials)
    print(f"{len(folder.documents)} documents; {search.ranker.state}")
    found: list[Document] = []
    while line := input(HELP).strip():
        if line in (":off", ":on"):
            search.learning = line == ":on"
        elif line == ":reset":
            search.reset()
        elif line == ":report":
            print(search.ranker.report())
        elif line.isdecimal() and 0 < int(line) <= len(found):
            search.open(int(line) - 1)
            print(found[int(line) - 1].body, found[int(line) - 1].place, sep="\n")
        else:
            found = search.find(line)
            for number, document in enumerate(found, start=1):
                print(f"{number:2} {document.name}: {document.summary}")
    search.close()


if __name__ == "__main__":
    main()
