package file

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// CodeRowRefTwice is the fault of a row whose author has given its own name to another row of the file.
const CodeRowRefTwice = "row_ref_twice"

// refs finds rows that their author calls alike. Honest equal rows have different names, or none; a name twice is one payment of the author's own
// records that is in the file twice. The EndToEndId of pain.001 is no such name: payrolls write SALARY into every row, and whoever has such a file
// cannot change the program that wrote it. There, rows that pay the same are found as duplicates, and nothing else is.
// Two hashes of 64 bits under seeds of chance, for a file whose author has no reason to force them together.
type refs struct {
	sorter *sorter
	seeds  [2]maphash.Seed
	alike  bool // rows may be called alike
}

func newRefs(s *sorter, format Format) *refs {
	return &refs{sorter: s, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, alike: format == FormatPain00103 || format == FormatPain00109}
}

func (r *refs) add(row *Row) error {
	if row.RowRef == "" || r.alike {
		return nil
	}
	return r.sorter.add(record{maphash.String(r.seeds[0], row.RowRef), maphash.String(r.seeds[1], row.RowRef), uint64(row.N), uint64(row.Line)}) //nolint:gosec // both from 1
}

// repeatedRef is a row whose name an earlier one has.
type repeatedRef struct{ row, line, firstLine int }

// repeated gives those that come first in the file, at most so many, and how many there are.
func (r *refs) repeated(limit int) (list []repeatedRef, n int, err error) {
	trim := func() {
		slices.SortFunc(list, func(a, b repeatedRef) int { return cmp.Compare(a.row, b.row) })
		list = list[:min(len(list), limit)]
	}
	var first record
	err = r.sorter.visit(func(at record) error {
		if first[2] == 0 || at[0] != first[0] || at[1] != first[1] {
			first = at
			return nil
		}
		n++
		list = append(list, repeatedRef{row: int(at[2]), line: int(at[3]), firstLine: int(first[3])}) //nolint:gosec // as they were put in
		if len(list) >= 2*limit+64 {
			trim()
		}
		return nil
	})
	trim()
	return list, n, err
}
