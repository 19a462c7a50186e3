package file

import (
	"cmp"
	"slices"
	"strings"

	"github.com/paidonce/paidonce/ledger/money"
)

// plainAmount writes an amount of a dialect as the contract does: no marks between groups, a point before the minor digits. False when marks stand
// where the dialect has none. Whether it is an amount then, job decides.
func plainAmount(text string, decimal, thousands byte) (string, bool) {
	whole, fraction, hasFraction := strings.Cut(text, string(decimal))
	if thousands != 0 && strings.IndexByte(whole, thousands) >= 0 {
		groups := strings.Split(whole, string(thousands))
		for i, group := range groups {
			if len(group) != 3 && (i > 0 || len(group) == 0 || len(group) > 3) {
				return "", false
			}
		}
		whole = strings.Join(groups, "")
	}
	if !onlyDigits(whole) || !onlyDigits(fraction) {
		return "", false
	}
	if hasFraction {
		return whole + "." + fraction, true
	}
	return whole, true
}

func onlyDigits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

// sortSums sorts by currency; false if one stands twice.
func sortSums(sums []money.Amount) bool {
	slices.SortFunc(sums, func(a, b money.Amount) int { return cmp.Compare(a.Currency, b.Currency) })
	for i := range sums {
		if i > 0 && sums[i].Currency == sums[i-1].Currency {
			return false
		}
	}
	return true
}
