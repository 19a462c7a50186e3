package file

import (
	"errors"
	"time"

	"github.com/paidonce/paidonce/worker/job"
)

// Format is how a file is written.
type Format string

// The formats.
const (
	FormatCSV       Format = "csv"
	FormatNDJSON    Format = "ndjson"
	FormatPain00103 Format = "pain.001.001.03"
	FormatPain00109 Format = "pain.001.001.09"
)

// Formats lists them.
func Formats() []Format { return []Format{FormatCSV, FormatNDJSON, FormatPain00103, FormatPain00109} }

// Row is one payment of a file.
type Row struct {
	N          int // from 1, good and bad rows counted
	Line       int // where it begins, from 1
	Job        job.Job
	RowRef     string // the author's own name of the row: column row_ref, member row_ref, EndToEndId; "" = none
	EndToEndID string // pain.001 only
	// Content is the fingerprint of what the file itself asks for: under no key, and without what Options add to it (source, route, begin of the run).
	Content [32]byte

	ownRoute bool // the row itself names its route
}

// Options say how to read a file, and for whom.
type Options struct {
	Source string // of all rows; it comes from who submits, never from the file
	Route  string // of rows that name none; "" = every row must name one
	// Routes tells what a route takes; false = there is no such route. nil = every possible name is a route that takes everything.
	Routes    func(route string) (Policy, bool)
	Dialect   Dialect        // of CSV
	Charset   Charset        // of names and references; CharsetAny
	Ignore    []string       // elements of pain.001 that may be dropped though the payment would lose something, such as "CtgyPurp"; none
	Location  *time.Location // where a date without a time begins; UTC
	NotBefore time.Time      // of the whole run: a row is not sent before it, whatever the row says; none
}

// Policy is what a route takes.
type Policy struct {
	Currencies []string         // nil = all
	MaxMinor   map[string]int64 // greatest amount of a row by currency; nil = no limit
}

// Charset limits the characters of names, references and EndToEndIds.
type Charset string

const (
	CharsetAny  Charset = ""     // what the contract takes
	CharsetSEPA Charset = "sepa" // the Latin set of the EPC: a-z A-Z 0-9 / - ? : ( ) . , ' + and space
)

// Dialect is how a template writes CSV.
type Dialect struct {
	Delimiter byte // ',', ';', '|' or tab; ','
	Decimal   byte // '.' or ','; '.'
	Thousands byte // '.', ',', '\'' or ' ' between groups of three digits, which may then also be left out; 0 = none
	// Columns is the header, exactly: a column, HEADER=column for one that the file calls otherwise, HEADER=- for one that is no part of a payment.
	// nil = the known columns that the file needs, in the order of the package's documentation
	Columns []string
	// Trailer is the first cell of the row that closes the file: "TRAILER,2,GBP,98.00" (rows, then currency and sum for each currency). A file
	// without it is cut off. "" = there is none.
	Trailer string
}

// Fault is one thing that is wrong with a file.
type Fault struct {
	Line    int    // from 1; 0 = the file as a whole
	Row     int    // from 1; 0 = it belongs to no row
	Column  string // a column, a JSON pointer, the path of an element; "" = the whole line
	Cell    int    // CSV: which cell of the line, from 1; 0 = none
	Code    string // one word for each kind of fault
	Message string // what is wrong
	Hint    string // what to do about it
	End     bool   // nothing behind it was read
}

// ErrEnded is what Next gives behind a Fault with End: the rest of the file was not read, so this is no end of file.
var ErrEnded = errors.New("file: reading ended at a fault")
