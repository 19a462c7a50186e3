package file

import (
	"slices"
	"strconv"
	"strings"
)

// column is one of the columns that a file may have, in the order of the documentation.
type column uint8

const (
	colRowRef column = iota
	colRoute
	colDebtorAccount
	colAmount
	colCurrency
	colName
	colIBAN
	colBIC
	colSortCode
	colAccountNumber
	colRoutingNumber
	colPixKey
	colReference
	colNotBefore
	colNotAfter
	columnCount
	noColumn = columnCount
)

// Columns lists the names of all columns in their order.
func Columns() []string {
	names := make([]string, 0, columnCount)
	for c := range columnCount {
		names = append(names, c.name())
	}
	return names
}

func (c column) name() string {
	return [...]string{"row_ref", "route", "debtor_account", "amount", "currency", "name", "iban", "bic", "sort_code", "account_number",
		"routing_number", "pix_key", "reference", "not_before", "not_after", ""}[c]
}

func columnOf(name string) column {
	for c := range columnCount {
		if c.name() == name {
			return c
		}
	}
	return noColumn
}

// required are the columns without which no row can be a payment.
func (c column) required() bool {
	switch c {
	case colDebtorAccount, colAmount, colCurrency, colName:
		return true
	}
	return false
}

// nearest is the column that somebody may have meant by another word.
func nearest(name string) column {
	plain := strings.NewReplacer(" ", "_", "-", "_", ".", "_", "\u00a0", "_").Replace(strings.ToLower(strings.TrimSpace(name)))
	if c := columnOf(plain); c != noColumn {
		return c
	}
	switch plain {
	case "description", "remittance", "remittance_information", "purpose", "payment_reference", "text", "verwendungszweck":
		return colReference
	case "id", "ref", "row", "row_id", "end_to_end_id", "endtoendid", "external_id", "payment_id":
		return colRowRef
	case "beneficiary", "beneficiary_name", "payee", "payee_name", "creditor", "creditor_name", "recipient", "full_name", "account_name":
		return colName
	case "account", "account_no", "accountnumber", "acct", "beneficiary_account":
		return colAccountNumber
	case "sortcode", "bank_code":
		return colSortCode
	case "routing", "aba", "aba_number", "routing_no", "routingnumber":
		return colRoutingNumber
	case "swift", "swift_code", "bic_code", "swift_bic":
		return colBIC
	case "value", "sum", "total", "betrag", "montant":
		return colAmount
	case "ccy", "cur", "currency_code":
		return colCurrency
	case "debtor", "from_account", "debit_account", "customer", "customer_id":
		return colDebtorAccount
	case "date", "execution_date", "value_date", "pay_date":
		return colNotBefore
	case "pix", "pixkey":
		return colPixKey
	}
	return noColumn
}

// readHeader finds which cell is which column. Without a declared header the columns stand in the order of the documentation, so that two columns
// that were swapped by accident do not stay unnoticed.
func readHeader(cells []string, template []headerCell, delimiter byte) ([]column, *Fault) {
	if fault := refuseNoHeader(cells, template, delimiter); fault != nil {
		return nil, fault
	}
	if template != nil {
		return readDeclared(cells, template, delimiter)
	}
	found := make([]column, len(cells))
	place := map[column]int{}
	for i, cell := range cells {
		c := columnOf(cell)
		if c == noColumn {
			return nil, headerFault(i, "column_unknown", "this is no name of a column", hintUnknown(cell))
		}
		if first, ok := place[c]; ok {
			fault := headerFault(i, "column_twice", "the column stands here and in cell "+strconv.Itoa(first+1), "remove one of the two columns")
			fault.Column = c.name()
			return nil, fault
		}
		place[c] = i
		found[i] = c
	}
	for i, c := range found {
		if i > 0 && c < found[i-1] {
			fault := headerFault(i, "columns_swapped", "stands behind a column that it must stand before",
				"the order is: "+strings.Join(Columns(), ",")+"; leave out what is not needed. Move the whole column, not only its name")
			fault.Column = c.name()
			return nil, fault
		}
	}
	return found, checkNeeded(place)
}

// refuseNoHeader tells a first line that is a row, or is not divided, from a header.
func refuseNoHeader(cells []string, template []headerCell, delimiter byte) *Fault {
	is := func(cell string) bool {
		return columnOf(cell) != noColumn || slices.ContainsFunc(template, func(d headerCell) bool { return d.header == cell })
	}
	for _, cell := range cells {
		if is(cell) || nearest(cell) != noColumn {
			return nil
		}
	}
	if strings.HasPrefix(strings.ToLower(cells[0]), "sep=") {
		return endFault(1, "spreadsheet_sep", "the first line is a spreadsheet's note of the delimiter, no header", "remove the line, and declare the delimiter")
	}
	for _, other := range []string{",", ";", "|", "\t"} {
		if first, _, found := strings.Cut(cells[0], other); len(cells) == 1 && found && is(first) {
			return endFault(1, "delimiter", "the cells are not divided by the declared delimiter", "the file seems to use "+strconv.Quote(other)+": declare it")
		}
	}
	return endFault(1, "header_missing", "the first line has no name of a column",
		"the first line must be: "+headerText(template, delimiter)+"; and the delimiter must be the declared one")
}

func checkNeeded(place map[column]int) *Fault {
	has := func(c column) bool { _, ok := place[c]; return ok }
	for c := range columnCount {
		if c.required() && !has(c) {
			return missingColumn(c, "add the column "+c.name())
		}
	}
	if !has(colIBAN) && !has(colPixKey) && (!has(colAccountNumber) || !has(colSortCode) && !has(colRoutingNumber)) {
		return missingColumn(colIBAN, "add iban, or sort_code and account_number, or routing_number and account_number, or pix_key")
	}
	return nil
}

func missingColumn(c column, hint string) *Fault {
	fault := endFault(1, "column_missing", "the file has no such column", hint)
	fault.Column = c.name()
	return fault
}

func hintUnknown(cell string) string {
	if c := nearest(cell); c != noColumn {
		return "names are exact: write " + c.name()
	}
	return "the columns are: " + strings.Join(Columns(), ",")
}

func headerFault(i int, code, message, hint string) *Fault {
	fault := endFault(1, code, message, hint)
	fault.Cell = i + 1
	return fault
}

func endFault(line int, code, message, hint string) *Fault {
	return &Fault{Line: line, Code: code, Message: message, Hint: hint, End: true}
}
