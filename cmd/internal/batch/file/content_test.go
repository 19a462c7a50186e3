package file

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/paidonce/paidonce/worker/job"
)

// TestContentDigestByHand computes the digest from its definition.
func TestContentDigestByHand(t *testing.T) {
	text := goodHeader + goodRow + strings.Replace(goodRow, "49.00", "48.00", 1) + goodRow
	var hashes []string
	report := mustCheck(t, text, FormatCSV, plain(), CheckOptions{Each: func(row *Row) error {
		asked := row.Job // under the nil key
		asked.Source, asked.Route = "", ""
		sum := asked.Fingerprint().Sum
		if row.Content != sum {
			t.Error("the content of a row is not its fingerprint")
		}
		hashes = append(hashes, string(sum[:]))
		return nil
	}})
	slices.Sort(hashes)
	whole := binary.BigEndian.AppendUint64([]byte("paidonce/batch/content/1\x00"), 3)
	if want := sha256.Sum256(append(whole, strings.Join(hashes, "")...)); report.ContentDigest != want {
		t.Errorf("%x, want %x", report.ContentDigest, want)
	}
	const golden = "b686441124bc365923e82c74e214caedc63ee98788e808d5ddc20704e3b40d1a" // of no rows: SHA-256 of the domain and eight zero bytes
	if empty := mustCheck(t, goodHeader, FormatCSV, plain(), CheckOptions{}); hex.EncodeToString(empty.ContentDigest[:]) != golden {
		t.Errorf("of no rows: %x", empty.ContentDigest)
	}
}

// TestJ11_TheSameFileOnAnotherWay is the same content: source, route and begin of a run are no part of the file. A route in a row is.
func TestJ11_TheSameFileOnAnotherWay(t *testing.T) {
	other := Options{Source: "another", Route: "gbp-chaps", NotBefore: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}
	for text, format := range map[string]Format{goodHeader + goodRow: FormatCSV, goodLine: FormatNDJSON, string(painDocument(FormatPain00103, 2)): FormatPain00103} {
		one, two := mustCheck(t, text, format, plain(), CheckOptions{}), mustCheck(t, text, format, other, CheckOptions{})
		if !one.Good() || !two.Good() || one.ContentDigest != two.ContentDigest {
			t.Errorf("%s: another content", format)
		}
	}
	for format, texts := range map[Format][2]string{
		FormatNDJSON: {goodLine, strings.Replace(goodLine, `{`, `{"route":"gbp-fps",`, 1)},
		FormatCSV:    {"route," + goodHeader[8:] + "," + goodRow[1:], "route," + goodHeader[8:] + "gbp-fps," + goodRow[1:]},
	} {
		one, two := mustCheck(t, texts[0], format, plain(), CheckOptions{}), mustCheck(t, texts[1], format, plain(), CheckOptions{})
		if !one.Good() || !two.Good() || one.ContentDigest == two.ContentDigest {
			t.Errorf("%s: a route in the row changes nothing; %s %s", format, codes(one), codes(two))
		}
	}
}

// TestContentDigestSeesEveryPayment: another amount, account, name, reference, route, day, payer, or a row more or less.
func TestContentDigestSeesEveryPayment(t *testing.T) {
	header := "route,debtor_account,amount,currency,name,iban,reference,not_before,not_after\n"
	row := "gbp-fps,cust-1,49.00,GBP,A N Example,GB33BUKB20201555555555,Rent,2026-12-24,2026-12-31\n"
	seen := map[[32]byte]string{}
	for _, change := range [][2]string{{"", ""}, {"gbp-fps", "gbp-chaps"}, {"cust-1", "cust-2"}, {"49.00", "49.01"}, {"GBP", "EUR"}, {"A N", "B N"},
		{"GB33BUKB20201555555555", "GB94BARC10201530093459"}, {"Rent", "rent"}, {"12-24", "12-25"}, {"12-31", "12-30"}, {row, row + row}} {
		report := mustCheck(t, header+strings.Replace(row, change[0], change[1], 1), FormatCSV, plain(), CheckOptions{})
		if !report.Good() {
			t.Fatal(codes(report))
		}
		if other, ok := seen[report.ContentDigest]; ok {
			t.Errorf("the change of %q is as that of %q", change[0], other)
		}
		seen[report.ContentDigest] = change[0]
	}
}

// TestJ8_Duplicates: by account, amount and day, whatever else differs.
func TestJ8_Duplicates(t *testing.T) {
	header := "debtor_account,amount,currency,name,iban,sort_code,account_number,reference,not_before\n"
	row := func(amount, currency, name, iban, sort, account, day string) string {
		return strings.Join([]string{"cust-1", amount, currency, name, iban, sort, account, "x", day}, ",") + "\n"
	}
	text := header +
		row("49.00", "GBP", "A N Example", "GB33BUKB20201555555555", "", "", "2026-12-24") + // 2
		row("49.00", "GBP", "Another Name", "", "202015", "55555555", "2026-12-24T23:00:00Z") + // 3: the same account
		row("49.00", "GBP", "A N Example", "GB33BUKB20201555555555", "", "", "2026-12-25") + // another day
		row("49.01", "GBP", "A N Example", "GB33BUKB20201555555555", "", "", "2026-12-24") + // another amount
		row("49.00", "EUR", "A N Example", "GB33BUKB20201555555555", "", "", "2026-12-24") + // another currency
		row("49.00", "GBP", "A N Example", "GB94BARC10201530093459", "", "", "2026-12-24") + // another account
		row("49.00", "GBP", "A N Example", "", "202015", "55555556", "2026-12-24") + // another account
		row("10.00", "GBP", "A N Example", "", "202015", "55555556", "") + // 9
		row("10.00", "GBP", "A N Example", "", "202015", "55555556", "") // 10
	report := mustCheck(t, text, FormatCSV, plain(), CheckOptions{})
	got := fmt.Sprint(report.Duplicates)
	if want := "[{2 [2 3] 49.00 GBP} {2 [9 10] 10.00 GBP}]"; got != want || report.DuplicateSets != 2 || report.DuplicateRows != 2 || !report.Good() {
		t.Errorf("%s, want %s (%d sets, %d rows, %s)", got, want, report.DuplicateSets, report.DuplicateRows, codes(report))
	}
}

// TestJ5_ManyEqualRowsAreCounted, the first ones are named, and none is dropped.
func TestJ5_ManyEqualRowsAreCounted(t *testing.T) {
	var b strings.Builder
	b.WriteString(goodHeader)
	for i := range 400 {
		for range 3 {
			b.WriteString(strings.Replace(goodRow, "49.00", fmt.Sprintf("%d.00", 1000-i), 1))
		}
	}
	rows := 0
	report := mustCheck(t, b.String(), FormatCSV, plain(), CheckOptions{MaxDuplicates: 5, Each: func(*Row) error { rows++; return nil }})
	if rows != 1200 || report.DuplicateSets != 400 || report.DuplicateRows != 800 || len(report.Duplicates) != 5 {
		t.Fatalf("%d rows, %+v", rows, report)
	}
	for i, d := range report.Duplicates {
		if want := fmt.Sprintf("{3 [%d %d %d] %d.00 GBP}", 2+3*i, 3+3*i, 4+3*i, 1000-i); fmt.Sprint(d) != want {
			t.Errorf("%v, want %s", d, want)
		}
	}
}

func TestSorter(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // a test that can be repeated
	for _, n := range []int{0, 1, 99, 100, 101, 200, 1234} {
		dir := t.TempDir()
		s := newSorter(dir, 100)
		var want []record
		for range n {
			r := record{random.Uint64N(3), random.Uint64N(3), random.Uint64(), random.Uint64N(2)}
			want = append(want, r)
			if err := s.add(r); err != nil {
				t.Fatal(err)
			}
		}
		slices.SortFunc(want, compareRecords)
		var got []record
		if err := s.visit(func(r record) error { got = append(got, r); return nil }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d records are not sorted", n)
		}
		if (s.file != nil) != (n > 100) {
			t.Errorf("%d records: on disk %v", n, s.file != nil)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%d records: left behind %v, %v", n, left, err)
		}
	}
	if compareRecords(recordOf([32]byte{31: 1}), recordOf([32]byte{30: 1})) >= 0 || compareRecords(recordOf([32]byte{1}), recordOf([32]byte{0, 255})) <= 0 {
		t.Error("records are not in the order of their bytes")
	}
}

// TestSortingOnDiskChangesNothing.
func TestSortingOnDiskChangesNothing(t *testing.T) {
	text := append(manyRows(5000), manyRows(300)[len(goodHeader):]...)
	whole := mustCheck(t, string(text), FormatCSV, plain(), CheckOptions{})
	spilled := mustCheck(t, string(text), FormatCSV, plain(), CheckOptions{inMemory: 64, TempDir: t.TempDir()})
	if whole.ContentDigest != spilled.ContentDigest || fmt.Sprint(whole.Duplicates) != fmt.Sprint(spilled.Duplicates) || spilled.DuplicateRows != 300 ||
		fmt.Sprint(whole.Faults) != fmt.Sprint(spilled.Faults) || spilled.FaultsByCode[CodeRowRefTwice] != 300 {
		t.Errorf("another report: %d and %d duplicates", whole.DuplicateRows, spilled.DuplicateRows)
	}
	if _, err := Check(t.Context(), bytes.NewReader(text), FormatCSV, plain(), CheckOptions{inMemory: 64, TempDir: t.TempDir() + "/none"}); err == nil {
		t.Error("no room on disk, and no error")
	}
}

// TestMemoryDoesNotGrowWithTheFile.
func TestMemoryDoesNotGrowWithTheFile(t *testing.T) {
	const rows = 150_000
	in, out := io.Pipe()
	go func() {
		_, _ = io.WriteString(out, goodHeader)
		part := manyRows(1000)[len(goodHeader):]
		for i := range rows / 1000 {
			_, _ = out.Write(bytes.ReplaceAll(part, []byte("row-"), fmt.Appendf(nil, "row-%d-", i)))
		}
		_ = out.Close()
	}()
	most := uint64(0)
	report, err := Check(t.Context(), in, FormatCSV, plain(), CheckOptions{inMemory: 1 << 10, TempDir: t.TempDir(), Progress: func(int, int64) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
	}})
	if err != nil || !report.Good() || report.Rows != rows {
		t.Fatal(err, report.Rows)
	}
	if most > 16<<20 {
		t.Errorf("%d bytes on the heap", most)
	}
}

// TestTheDiskHoldsNoAccounts: what is sorted on disk is hashes, those of accounts under a key of chance.
func TestTheDiskHoldsNoAccounts(t *testing.T) {
	row := Row{N: 1, Line: 2}
	row.Job.Beneficiary = job.Beneficiary{IBAN: "GB33BUKB20201555555555"}
	row.Job.Amount.Currency = "GBP"
	records := map[record]bool{}
	for range 2 {
		d := newDuplicates(newSorter("", 10))
		if err := d.add(&row); err != nil {
			t.Fatal(err)
		}
		records[d.sorter.records[0]] = true
	}
	if len(records) != 2 {
		t.Error("the same account has the same hash in two checks")
	}
}
