package money

import (
	"cmp"
	"errors"
	"math"
	"strconv"

	"github.com/bojanz/currency"
)

// What Parse, Add and Compare refuse. Each is returned as it is, so == and errors.Is both work.
var (
	ErrCurrency = errors.New("currency unknown or not the same")
	ErrForm     = errors.New("amount is not a plain decimal: no sign, exponent, separator, space or leading zero")
	ErrDigits   = errors.New("amount has not exactly the digits of its currency")
	ErrZero     = errors.New("amount is not above zero")
	ErrOverflow = errors.New("amount does not fit 64 bits of minor units")
)

// Amount is a number of minor units (pence, fils, yen) of a currency. The zero value is no amount: it has no currency.
type Amount struct {
	Minor    int64
	Currency string // ISO 4217, upper case
}

// Digits returns how many digits follow the decimal point in the currency, and whether the currency is known.
func Digits(code string) (int, bool) {
	digits, ok := currency.GetDigits(code)
	return int(digits), ok
}

// Parse reads a decimal above zero that is written with exactly the digits of its currency: "49.00" GBP, "500" JPY,
// "18.600" KWD.
func Parse(decimal, code string) (Amount, error) {
	digits, ok := Digits(code)
	if !ok {
		return Amount{}, ErrCurrency
	}
	whole, fraction, err := split(decimal)
	if err != nil {
		return Amount{}, err
	}
	if len(fraction) != digits {
		return Amount{}, ErrDigits
	}
	minor, ok := appendDigits(0, whole)
	if ok {
		minor, ok = appendDigits(minor, fraction)
	}
	if !ok {
		return Amount{}, ErrOverflow
	}
	if minor == 0 {
		return Amount{}, ErrZero
	}
	return Amount{Minor: minor, Currency: code}, nil
}

// split takes a plain decimal apart at its point; the point needs digits on both sides.
func split(decimal string) (whole, fraction string, err error) {
	whole = decimal
	for i := range len(decimal) {
		c := decimal[i]
		if c == '.' && len(whole) == len(decimal) {
			whole, fraction = decimal[:i], decimal[i+1:]
			if fraction == "" {
				return "", "", ErrForm
			}
			continue
		}
		if c < '0' || c > '9' {
			return "", "", ErrForm
		}
	}
	if whole == "" || len(whole) > 1 && whole[0] == '0' {
		return "", "", ErrForm
	}
	return whole, fraction, nil
}

// appendDigits writes digits behind the number n; false when the result does not fit.
func appendDigits(n int64, digits string) (int64, bool) {
	for i := range len(digits) {
		d := int64(digits[i] - '0')
		if n > (math.MaxInt64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// Decimal writes the amount with exactly the digits of its currency. An amount whose currency is unknown has no decimal;
// what is written then, "4900?", is refused by Parse.
func (a Amount) Decimal() string {
	digits, ok := Digits(a.Currency)
	if !ok {
		return strconv.FormatInt(a.Minor, 10) + "?"
	}
	var space [32]byte
	text := strconv.AppendInt(space[:0], a.Minor, 10)
	sign := 0
	if a.Minor < 0 {
		sign = 1 // entries of the journal are signed, parsed amounts never are
	}
	if digits == 0 {
		return string(text)
	}
	var out [40]byte
	b := append(out[:0], text[:sign]...)
	text = text[sign:]
	for range digits + 1 - len(text) {
		b = append(b, '0')
	}
	b = append(b, text...)
	point := len(b) - digits
	b = append(b, 0)
	copy(b[point+1:], b[point:])
	b[point] = '.'
	return string(b)
}

// String writes the amount for people: "49.00 GBP".
func (a Amount) String() string {
	return a.Decimal() + " " + a.Currency
}

// Add returns a + b of the same currency, or ErrCurrency, or ErrOverflow.
func (a Amount) Add(b Amount) (Amount, error) {
	if a.Currency != b.Currency {
		return Amount{}, ErrCurrency
	}
	if b.Minor > 0 && a.Minor > math.MaxInt64-b.Minor || b.Minor < 0 && a.Minor < math.MinInt64-b.Minor {
		return Amount{}, ErrOverflow
	}
	return Amount{Minor: a.Minor + b.Minor, Currency: a.Currency}, nil
}

// Compare returns -1, 0 or +1 as a is less than, equal to or more than b of the same currency, or ErrCurrency.
func (a Amount) Compare(b Amount) (int, error) {
	if a.Currency != b.Currency {
		return 0, ErrCurrency
	}
	return cmp.Compare(a.Minor, b.Minor), nil
}
