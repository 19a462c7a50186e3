package file

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"

	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
)

// contentDomain separates these hashes from every other use of SHA-256.
const contentDomain = "paidonce/batch/content/1\x00"

// contents makes the ContentDigest: SHA-256 over the number of rows and their sorted fingerprints. Sorting makes it independent of the order. Sums of
// hashes (modulo 2^256, or by XOR) would do so without memory, but they are no commitment: with some hundred thousand rows to choose from, whoever
// writes the file finds another list with the same sum (Wagner's generalised birthday). Two lists with one digest here are a collision of SHA-256.
//
// The digest is for rows as the file has them: what a run adds to all of them (source, route, its own not_before) changes nothing, so that the same file
// is known again on another way; and neither does the author's own name of a row, which a second export may number anew.
type contents struct {
	sorter *sorter
	rows   uint64
}

func (c *contents) add(row *Row) error {
	c.rows++
	return c.sorter.add(recordOf(row.Content))
}

func (c *contents) sum() ([32]byte, error) {
	h := sha256.New()
	_, _ = h.Write(binary.BigEndian.AppendUint64([]byte(contentDomain), c.rows))
	buffer := make([]byte, 0, 8<<10)
	err := c.sorter.visit(func(r record) error {
		if buffer = r.appendTo(buffer); len(buffer) == cap(buffer) {
			_, _ = h.Write(buffer)
			buffer = buffer[:0]
		}
		return nil
	})
	_, _ = h.Write(buffer)
	return [32]byte(h.Sum(nil)), err
}

// Duplicate is a group of rows that pay the same account the same amount on the same day. They may be meant: two equal rows are two payments, and it
// is a person who says so.
type Duplicate struct {
	Count  int   // rows of the group
	Lines  []int // of the first ten of them
	Amount money.Amount
}

const (
	linesOfDuplicate = 10
	currencyBits     = 24 // three letters, behind the line in one word
)

// duplicates finds them. The hash is keyed by chance, so that nothing in the file on disk can be compared with known accounts. Half a hash is enough:
// rows are compared within one file, and whoever forces two of them together has only made his own file look worse.
type duplicates struct {
	sorter *sorter
	hash   hash.Hash
	salt   [32]byte
	buffer []byte
	sum    []byte
}

func newDuplicates(s *sorter) *duplicates {
	d := &duplicates{sorter: s, hash: sha256.New()}
	_, _ = rand.Read(d.salt[:])
	return d
}

func (d *duplicates) add(row *Row) error {
	b := append(d.buffer[:0], d.salt[:]...)
	b = AppendAccount(b, &row.Job.Beneficiary)
	b = append(b, row.Job.Amount.Currency...)
	b = binary.BigEndian.AppendUint64(b, uint64(row.Job.Amount.Minor)) //nolint:gosec // above zero
	if day := row.Job.NotBefore; !day.IsZero() {
		b = binary.BigEndian.AppendUint32(b, uint32(day.Unix()/86400)) //nolint:gosec // the years 2000 to 9999
	}
	d.buffer = b
	d.hash.Reset()
	_, _ = d.hash.Write(b)
	d.sum = d.hash.Sum(d.sum[:0])
	place := uint64(row.Line) << currencyBits //nolint:gosec // counts from 1
	for i := range len(row.Job.Amount.Currency) {
		place |= uint64(row.Job.Amount.Currency[i]) << (16 - 8*i)
	}
	return d.sorter.add(record{binary.BigEndian.Uint64(d.sum), binary.BigEndian.Uint64(d.sum[8:]), place, uint64(row.Job.Amount.Minor)}) //nolint:gosec // above zero
}

// AppendAccount writes what identifies the account. The IBAN of a British account contains sort code and number: it is the same account.
func AppendAccount(b []byte, who *job.Beneficiary) []byte {
	sort, account := who.SortCode.Reveal(), who.AccountNumber.Reveal()
	if iban := who.IBAN.Reveal(); len(iban) == 22 && iban[:2] == "GB" {
		sort, account = iban[8:14], iban[14:]
	} else {
		b = append(b, iban...)
	}
	for _, text := range []string{"|", sort, "|", who.RoutingNumber.Reveal(), "|", account, "|", who.PixKey.Reveal(), "|"} {
		b = append(b, text...)
	}
	return b
}

// find gives the groups that begin first in the file, at most so many; and how many groups, and rows beyond the first of each, there are.
func (d *duplicates) find(limit int) (list []Duplicate, groups, rows int, err error) {
	var first record
	var open Duplicate
	finish := func() {
		if open.Count < 2 {
			return
		}
		groups++
		rows += open.Count - 1
		list = append(list, open)
		if len(list) >= 2*limit+64 {
			list = firstOf(list, limit)
		}
	}
	err = d.sorter.visit(func(r record) error {
		if open.Count == 0 || r[0] != first[0] || r[1] != first[1] {
			finish()
			first, open = r, Duplicate{Count: 1}
			return nil
		}
		if open.Count == 1 {
			open.Amount = amountOf(first)
			open.Lines = append(make([]int, 0, linesOfDuplicate), lineOf(first))
		}
		open.Count++
		if len(open.Lines) < linesOfDuplicate {
			open.Lines = append(open.Lines, lineOf(r))
		}
		return nil
	})
	finish()
	return firstOf(list, limit), groups, rows, err
}

func lineOf(r record) int { return int(r[2] >> currencyBits) } //nolint:gosec // as it was put in

func amountOf(r record) money.Amount {
	return money.Amount{Minor: int64(r[3]), Currency: string([]byte{byte(r[2] >> 16), byte(r[2] >> 8), byte(r[2])})} //nolint:gosec // as it was put in
}

func firstOf(list []Duplicate, limit int) []Duplicate {
	slices.SortFunc(list, func(a, b Duplicate) int { return cmp.Compare(a.Lines[0], b.Lines[0]) })
	return list[:min(len(list), limit)]
}
