package file

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// check judges a value by its type: "" if it is one, or what it should be.
func (v *valueType) check(text string) string {
	ok := true
	switch v.kind {
	case "t":
		if text == "" || len(text) > v.limit && utf8.RuneCountInString(text) > v.limit {
			return "must have 1 to " + itoa(v.limit) + " characters"
		}
	case "e":
		ok = slices.Contains(v.valid, text)
	case "n15":
		ok = text != "" && len(text) <= 15 && onlyDigits(text)
	case "num", "amt":
		ok = isDecimal(text)
	case "date":
		_, ok = xmlDate(text, time.UTC)
	case "time":
		_, ok = xmlTime(text, time.UTC)
	case "bool":
		ok = text == "true" || text == "false" || text == "1" || text == "0"
	default:
		ok = matches(v.kind, text)
	}
	if ok {
		return ""
	}
	return "is no value of its type in the schema"
}

// collapses says whether white space around the value does not count, as in a schema for all that is no text.
func (v *valueType) collapses() bool {
	switch v.kind {
	case "num", "amt", "date", "time", "bool":
		return true
	}
	return false
}

// matches compares with the patterns of the schema.
func matches(kind, text string) bool {
	switch kind {
	case "ccy":
		return hasShape(text, "AAA")
	case "ctry":
		return hasShape(text, "AA")
	case "bic3": // of 2009: letters first, and neither 0 and 1 nor the letter O where they would be taken for each other
		return (hasShape(text, "AAAAAAXX") || hasShape(text, "AAAAAAXXXXX")) && text[6] != '0' && text[6] != '1' && text[7] != 'O'
	case "bic9":
		return hasShape(text, "XXXXAAXX") || hasShape(text, "XXXXAAXXXXX")
	case "an4":
		return hasShape(text, "xxxx")
	case "lei":
		return hasShape(text, "XXXXXXXXXXXXXXXXXX99")
	case "iban":
		return len(text) >= 5 && len(text) <= 34 && hasShape(text[:4], "AA99") && hasShape(text[4:], strings.Repeat("x", len(text)-4))
	case "uetr":
		return hasShape(text, "hhhhhhhh-hhhh-4hhh-hhhh-hhhhhhhhhhhh") && strings.IndexByte("89ab", text[19]) >= 0
	case "phone":
		country, number, ok := strings.Cut(text, "-")
		return ok && len(country) >= 2 && len(country) <= 4 && country[0] == '+' && onlyDigits(country[1:]) && len(number) >= 1 && len(number) <= 30 &&
			strings.Trim(number, "0123456789()+-") == ""
	default:
		panic("file: the grammar of pain.001 names a type that nobody checks: " + kind)
	}
}

// hasShape compares sign by sign: A a letter, 9 a digit, X one of both, x also a small letter, h a hexadecimal digit, and every other sign itself.
func hasShape(text, shape string) bool {
	if len(text) != len(shape) {
		return false
	}
	for i := range len(text) {
		if !fits(text[i], shape[i]) {
			return false
		}
	}
	return true
}

func fits(c, sign byte) bool {
	upper, digit, lower := c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c >= 'a' && c <= 'z'
	switch sign {
	case 'A':
		return upper
	case '9':
		return digit
	case 'X':
		return upper || digit
	case 'x':
		return upper || digit || lower
	case 'h':
		return digit || c >= 'a' && c <= 'f'
	default:
		return c == sign
	}
}

// isDecimal is stricter than xs:decimal: no sign, digits on both sides of a point, no zeros in front. All are plain mistakes in an amount.
func isDecimal(text string) bool {
	whole, fraction, point := strings.Cut(text, ".")
	return whole != "" && len(whole)+len(fraction) <= 18 && onlyDigits(whole) && onlyDigits(fraction) && (!point || fraction != "") &&
		(len(whole) == 1 || whole[0] != '0')
}

// xmlDate reads a date, perhaps with an offset, as the begin of that day.
func xmlDate(text string, location *time.Location) (time.Time, bool) {
	day, err := time.ParseInLocation(time.DateOnly, text, location)
	if err != nil {
		day, err = time.Parse("2006-01-02Z07:00", text)
	}
	return day, err == nil
}

// xmlTime reads a date and a time, perhaps with an offset.
func xmlTime(text string, location *time.Location) (time.Time, bool) {
	if strings.IndexByte(text, ',') >= 0 {
		return time.Time{}, false // which time.Parse takes for a point
	}
	at, err := time.ParseInLocation("2006-01-02T15:04:05", text, location)
	if err != nil {
		at, err = time.Parse(time.RFC3339Nano, text)
	}
	return at, err == nil
}
