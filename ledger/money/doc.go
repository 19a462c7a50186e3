// Package money holds amounts as whole minor units of an ISO 4217 currency.
//
// What may be relied on:
//
//  1. No floating point is used anywhere, and nothing is ever rounded.
//  2. Parse accepts exactly one spelling of every amount: the one that Decimal writes. A decimal with more or fewer
//     digits than its currency has is refused, so a x100 mistake is refused instead of paid.
//  3. Sums are checked: an overflow is an error, never a wrapped amount.
//  4. A currency is known if ISO 4217 lists it with a number of minor digits. Metals, test codes and "no currency" (XAU,
//     XTS, XXX) are not money here.
//
// Errors never contain the text that was refused.
package money
