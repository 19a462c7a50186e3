package file

import (
	"strings"
	"unicode/utf8"
)

// suspicious is the quick look: most cells hold nothing that a spreadsheet could have damaged without the strict checks noticing.
func suspicious(value string) bool {
	switch c := value[0]; {
	case c == '#', c >= '0' && c <= '9':
		return true
	}
	for i := range len(value) {
		if value[i] >= utf8.RuneSelf {
			return true
		}
	}
	return false
}

// damaged names what a spreadsheet or a wrong encoding has done to a cell; "" if nothing is known. It sees what the strict checks of a job would
// take: a name, a reference or an account of ours may be nearly any text. The other cells are named when they were refused: see damageOf.
func damaged(c column, value string) (code, message, hint string) {
	if code, message, hint := sheetError(value); code != "" {
		return code, message, hint
	}
	switch c {
	case colDebtorAccount, colReference, colRowRef, colName:
		if isExponent(value) {
			return "spreadsheet_exponent", "was written as a power of ten by a spreadsheet; digits are lost",
				"format the column as text, and enter the value again"
		}
		if c != colReference && wholeFraction(value) {
			return "spreadsheet_fraction", "a number with .0 behind it: the column was taken for numbers", "format the column as text"
		}
	}
	if strings.ContainsRune(value, utf8.RuneError) {
		return "replacement_character", "has a character that stands for one that was lost", "the text was damaged before; take it from its source again"
	}
	if encodedTwice(value) {
		return "encoded_twice", "is UTF-8 that was read as Latin-1 and encoded again", "export again as UTF-8 and compare the names"
	}
	return "", "", ""
}

// sheetError knows what a spreadsheet shows in place of a value.
func sheetError(value string) (code, message, hint string) {
	if value[0] != '#' {
		return "", "", ""
	}
	if strings.Trim(value, "#") == "" && len(value) >= 2 {
		return "spreadsheet_hashes", "is filled with number signs: the column was too narrow when it was exported", "widen the column, and export it again"
	}
	switch strings.TrimRight(value, "!?") {
	case "#REF", "#N/A", "#NAME", "#VALUE", "#DIV/0", "#NULL", "#NUM", "#SPILL", "#CALC", "#NV", "#WERT", "#BEZUG":
		return "spreadsheet_error", "is an error value of a formula", "mend the formula, and export the values"
	}
	return "", "", ""
}

// damageOf names what a spreadsheet has probably done to a cell that was refused; "" if nothing is known.
func damageOf(c column, values *[columnCount + 1]string, d Dialect) (code, message, hint string) {
	value := values[c]
	const asText = "format the column as text, and enter the value again"
	switch {
	case value == "":
		return "", "", ""
	case isExponent(value):
		return "spreadsheet_exponent", "was written as a power of ten by a spreadsheet; digits are lost", asText
	case value[0] == '=':
		return "spreadsheet_formula", "is a formula", "export values, no formulas"
	case value[0] == '\'':
		return "spreadsheet_apostrophe", "begins with the apostrophe by which a spreadsheet marks text", "remove the apostrophe"
	}
	switch c {
	case colAmount:
		return amountDamage(value, d)
	case colNotBefore, colNotAfter:
		if number, _, _ := strings.Cut(value, "."); len(number) == 5 && onlyDigits(number) {
			return "spreadsheet_date", "is a date as the number of its day", "format the column as text, and write 2026-12-24"
		}
		if strings.ContainsAny(value, "/.") && !strings.Contains(value, "T") || len(value) > 2 && value[2] == '-' {
			return "date_order", "is a date whose day and month cannot be told apart for sure", "write 2026-12-24"
		}
		return "", "", ""
	}
	return accountDamage(c, values)
}

func amountDamage(value string, d Dialect) (code, message, hint string) {
	_, plain := plainAmount(value, d.Decimal, d.Thousands)
	switch {
	case strings.ContainsAny(value, "$€£¥") || strings.ContainsAny(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"):
		return "amount_symbol", "has letters or the sign of a currency in it", "only digits and the decimal mark; the currency has its own column"
	case value[0] == '-' || value[0] == '+' || value[0] == '(':
		return "amount_sign", "has a sign", "amounts have no sign; a row cannot take money back"
	case strings.IndexByte(value, otherMark(d.Decimal)) >= 0 && d.Thousands != otherMark(d.Decimal):
		return "amount_mark", "has another decimal mark than the template declares, or marks between thousands",
			"the template declares " + string(d.Decimal) + " as decimal mark, and nothing between thousands: correct the template or the file"
	case d.Thousands == 0 && strings.ContainsAny(value, "' \u00a0\u202f"), d.Thousands != 0 && !plain && strings.IndexByte(value, d.Thousands) >= 0:
		return "amount_groups", "has marks between groups of digits that are not where the template declares them", "export the amounts without them"
	}
	return "", "", ""
}

func otherMark(decimal byte) byte {
	if decimal == '.' {
		return ','
	}
	return '.'
}

// accountDamage looks at what identifies an account.
func accountDamage(c column, values *[columnCount + 1]string) (code, message, hint string) {
	value := values[c]
	switch {
	case strings.ContainsFunc(value, isSpace) && c != colName && c != colReference && c != colDebtorAccount:
		if strings.ContainsAny(value, "\u00a0\u202f\u2007") {
			return "account_space", "has non-breaking spaces in it", "remove all spaces, also those that look like none"
		}
		return "account_space", "has spaces in it", "remove the spaces"
	case wholeFraction(value):
		return "spreadsheet_fraction", "a number with .0 behind it: the column was taken for numbers", "format the column as text"
	case !onlyDigits(value):
		return "", "", ""
	}
	want := 0
	switch c {
	case colSortCode:
		want = 6
	case colRoutingNumber:
		want = 9
	case colAccountNumber:
		if values[colSortCode] != "" {
			want = 8
		}
	case colPixKey:
		if want = 11; len(value) > 11 {
			want = 14
		}
	}
	if len(value) < want && len(value) >= want-4 {
		return "spreadsheet_zeros", "is too short: a spreadsheet takes zeros away that stand in front",
			"format the column as text, and enter the value again with its zeros"
	}
	return "", "", ""
}

// isExponent knows 1.9E+18, 1,9E+18 and 4E+05.
func isExponent(value string) bool {
	mantissa, exponent, ok := strings.Cut(value, "E+")
	if !ok {
		mantissa, exponent, ok = strings.Cut(value, "e+")
	}
	if !ok || exponent == "" || mantissa == "" || !onlyDigits(exponent) {
		return false
	}
	whole, fraction, _ := strings.Cut(strings.Replace(mantissa, ",", ".", 1), ".")
	return whole != "" && onlyDigits(whole) && onlyDigits(fraction)
}

// wholeFraction knows 4471.0: a number that once was none.
func wholeFraction(value string) bool {
	whole, zero, ok := strings.Cut(value, ".")
	return ok && whole != "" && onlyDigits(whole) && (zero == "0" || zero == "00")
}

// encodedTwice knows "MÃ¼ller": the two bytes of one character of UTF-8, each taken for a character of Latin-1 or Windows-1252. The second of them is a
// sign that does not stand behind such a letter in any language.
func encodedTwice(value string) bool {
	lead := false
	for _, r := range value {
		if lead && (r >= 0x80 && r <= 0xbf || strings.ContainsRune("€‚ƒ„†‡ˆ‰Š‹ŒŽ•˜™š›œžŸ", r)) {
			return true
		}
		lead = r == 'Ã' || r == 'Â'
	}
	return false
}

func isSpace(r rune) bool {
	switch r {
	case ' ', '\t', '\u00a0', '\u202f', '\u2007', '\u200b', '\u2060':
		return true
	}
	return false
}
