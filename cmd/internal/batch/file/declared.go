package file

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// headerCell is one cell of the header that a template declares, and the column that it is; noColumn: what stands there is passed over.
type headerCell struct {
	header string
	column column
}

// passedOver stands in a template for the column of a cell that is no part of a payment.
const passedOver = "-"

// SplitDeclared reads one item of Dialect.Columns: a column, or HEADER=column where the file calls it otherwise. Column "": it is passed over.
func SplitDeclared(item string) (header, column string) {
	at := strings.LastIndexByte(item, '=')
	if at < 0 {
		return item, item
	}
	header, column = strings.TrimSpace(item[:at]), strings.TrimSpace(item[at+1:])
	if column == passedOver {
		column = ""
	}
	return header, column
}

// readTemplate reads Dialect.Columns, and says everything that is wrong with it.
func readTemplate(items []string) ([]headerCell, error) {
	if items == nil {
		return nil, nil
	}
	template := make([]headerCell, 0, len(items))
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, item := range items {
		header, name := SplitDeclared(item)
		d := headerCell{header: header, column: columnOf(name)}
		switch {
		case header == "" || name != "" && d.column == noColumn || strings.ContainsAny(header, "\"\r\n"):
			bad("%q is neither a column nor HEADER=column nor HEADER=-; the columns are: %s", item, strings.Join(Columns(), ", "))
			continue
		case slices.ContainsFunc(template, func(other headerCell) bool { return other.header == d.header }):
			bad("%q stands twice", header)
		case d.column != noColumn && slices.ContainsFunc(template, func(other headerCell) bool { return other.column == d.column }):
			bad("two cells are %s", name)
		}
		template = append(template, d)
	}
	for c := range columnCount {
		if c.required() && !has(template, c) && errs == nil {
			bad("no column is %s, and no row can be a payment without it", c.name())
		}
	}
	if errs == nil && !has(template, colIBAN) && !has(template, colPixKey) &&
		(!has(template, colAccountNumber) || !has(template, colSortCode) && !has(template, colRoutingNumber)) {
		bad("no column names an account: iban, or sort_code and account_number, or routing_number and account_number, or pix_key")
	}
	return template, errors.Join(errs...)
}

func has(template []headerCell, c column) bool {
	return slices.ContainsFunc(template, func(d headerCell) bool { return d.column == c })
}

// readDeclared compares a header with that of the template, which is exact.
func readDeclared(cells []string, template []headerCell, delimiter byte) ([]column, *Fault) {
	hint := "the header must be: " + headerText(template, delimiter)
	for i, cell := range cells {
		if first := slices.Index(cells, cell); first < i {
			fault := headerFault(i, "column_twice", "the column stands here and in cell "+strconv.Itoa(first+1), "remove one of the two columns")
			fault.Column = cell
			return nil, fault
		}
		if !slices.ContainsFunc(template, func(d headerCell) bool { return d.header == cell }) {
			return nil, headerFault(i, "column_unknown", "the template has no such column", hint)
		}
	}
	for _, d := range template {
		if !slices.Contains(cells, d.header) {
			fault := endFault(1, "column_missing", "the file has no such column", hint)
			fault.Column = d.header
			return nil, fault
		}
	}
	found := make([]column, len(cells))
	for i, cell := range cells {
		if cell != template[i].header {
			fault := headerFault(i, "columns_swapped", "stands where "+template[i].header+" must stand", hint+". Move the whole column, not only its name")
			fault.Column = cell
			return nil, fault
		}
		found[i] = template[i].column
	}
	return found, nil
}

// headerText is how the first line must be.
func headerText(template []headerCell, delimiter byte) string {
	if template == nil {
		return strings.Join(Columns(), string(delimiter))
	}
	headers := make([]string, len(template))
	for i, d := range template {
		headers[i] = d.header
	}
	return strings.Join(headers, string(delimiter))
}
