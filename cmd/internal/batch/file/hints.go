package file

import (
	"slices"
	"strings"

	"github.com/paidonce/paidonce/worker/job"
)

// rowFault is a fault of the row at hand; Next counts it. The column gives the cell, if the header has it.
func (s *csvSource) rowFault(c column, cell int, code, message, hint string) *Fault {
	fault := &Fault{Line: s.lines.number, Row: 1, Cell: cell, Code: code, Message: message, Hint: hint}
	fault.Column = c.name()
	if at := slices.Index(s.header, c); cell == 0 && c != noColumn && at >= 0 {
		fault.Cell = at + 1
	}
	if fault.Cell > 0 && fault.Cell <= len(s.header) {
		fault.Column = s.names[fault.Cell-1] // as the file calls it
	}
	return fault
}

// countFault is about a line that has not as many cells as the header.
func (s *csvSource) countFault() *Fault {
	if len(s.cells) < len(s.header) {
		return s.rowFault(noColumn, 0, "cells_missing", "the line has fewer cells than the header", "was it cut off, or is a delimiter missing?")
	}
	return s.rowFault(noColumn, 0, "cells_extra", "the line has more cells than the header",
		"a cell with a delimiter in it must stand in quotes; is the decimal mark the delimiter?")
}

func (s *csvSource) bytesFault(line []byte) *Fault {
	code, message, hint := encodingFault(line)
	return s.rowFault(noColumn, 0, code, message, hint)
}

func (s *csvSource) amountFault(value string) *Fault {
	if code, message, hint := damageOf(colAmount, &[columnCount + 1]string{colAmount: value}, s.dialect); code != "" {
		return s.rowFault(colAmount, 0, code, message, hint)
	}
	return s.rowFault(colAmount, 0, job.CodeAmountForm, "must be a plain decimal: no sign, exponent, space or leading zero", hintOf(job.CodeAmountForm, ""))
}

// jobFault says in words of the file why a row is no job: what a spreadsheet has done to the cell, if that is known, or else what job found.
func (s *csvSource) jobFault(fault *job.Fault, values *[columnCount + 1]string) *Fault {
	c := columnOf(fault.Path[strings.LastIndexByte(fault.Path, '/')+1:])
	if c != noColumn {
		if c == colIBAN && s.swapped(values) {
			return s.rowFault(c, 0, "columns_swapped", "holds no IBAN, but another cell of the row does", "move the whole column, not only its name")
		}
		if code, message, hint := damageOf(c, values, s.dialect); code != "" {
			return s.rowFault(c, 0, code, message, hint)
		}
	}
	return s.rowFault(c, 0, fault.Code, fault.Detail, hintOf(fault.Code, fault.Path))
}

// swapped is true if a cell that is for text holds what looks like an IBAN.
func (s *csvSource) swapped(values *[columnCount + 1]string) bool {
	for _, c := range []column{colName, colReference, colBIC, colDebtorAccount} {
		v := values[c]
		if len(v) >= 15 && len(v) <= 34 && v[0] >= 'A' && v[0] <= 'Z' && v[1] >= 'A' && v[1] <= 'Z' && onlyDigits(v[2:4]) && onlyDigits(v[len(v)-6:]) {
			return c != colDebtorAccount || values[colName] == ""
		}
	}
	return false
}

// hintOf says what to do about a fault of a job.
func hintOf(code, path string) string {
	switch code {
	case job.CodeUnknownName:
		if path == "/v" || path == "/key" {
			return "remove it from the row"
		}
		return "the members are those of the contract, without v and key; and route and row_ref"
	case job.CodeDuplicateName, job.CodeCaseVariantName:
		return "leave one of the two out"
	case job.CodeWrongType, job.CodeNullValue:
		return "write every value as a string in quotes, also the amount; leave a member out rather than null"
	case job.CodeSyntax, job.CodeTruncated, job.CodeTrailingData, job.CodeNotAnObject, job.CodeEmpty:
		return "each line must hold exactly one object, and end with LF or CRLF"
	case job.CodeMissing:
		return "fill it in"
	case job.CodeAmountDigits:
		return "write all digits of the currency: 49.50 GBP, 500 JPY, 18.600 KWD; format the column so that zeros at the end stay"
	case job.CodeAmountForm:
		return "write 1234.50: digits, one decimal mark, digits"
	case job.CodeAmountZero, job.CodeAmountRange:
		return "correct the amount, or leave the row out"
	case job.CodeCurrencyForm, job.CodeCurrencyUnknown:
		return "write the three letters of ISO 4217, such as GBP"
	case job.CodeBeneficiaryForm:
		return "fill in the cells of exactly one account: iban; sort_code and account_number; routing_number and account_number; or pix_key"
	case job.CodeIBANForm:
		return "write it without spaces and in upper case"
	case job.CodeIBANCheckDigits, job.CodeIBANLength, job.CodeIBANCountry, job.CodeRoutingCheck, job.CodePixKeyCheck:
		return "a character is wrong or missing: ask the beneficiary again, do not correct it by guess"
	case job.CodeSortCodeForm:
		return "write 6 digits without hyphens, with the zeros in front"
	case job.CodeAccountForm, job.CodeRoutingForm:
		return "digits only, with the zeros in front"
	case job.CodeTimeForm, job.CodeTimeRange:
		return "write 2026-12-24 or 2026-12-24T09:00:00Z"
	case job.CodeWindowEmpty:
		return "not_after must be later than not_before"
	case job.CodeTextEmpty:
		return "fill it in, or leave it out"
	case "value_form":
		return "compare with the schema"
	case job.CodeTextSpace:
		return "remove the spaces at the begin and at the end"
	case job.CodeTextTooLong:
		return "shorten the text yourself: nothing is cut off here"
	case job.CodeControlCharacter, job.CodeNULByte:
		return "remove the invisible character: enter the text again instead of copying it"
	case job.CodeRouteName:
		return "a route has lower-case letters, digits, hyphens and underscores"
	case job.CodeBICForm:
		return "a BIC has 8 or 11 characters; leave it out if it is not known"
	default:
		return "see the contract of a job"
	}
}
