package money_test

import (
	"fmt"

	"github.com/paidonce/paidonce/ledger/money"
)

func ExampleParse() {
	for _, c := range [][2]string{{"49.00", "GBP"}, {"500", "JPY"}, {"18.600", "KWD"}, {"49", "GBP"}} {
		amount, err := money.Parse(c[0], c[1])
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(amount.Minor, amount)
	}
	// Output:
	// 4900 49.00 GBP
	// 500 500 JPY
	// 18600 18.600 KWD
	// amount has not exactly the digits of its currency
}

func ExampleAmount_Add() {
	sum, err := money.Amount{Minor: 4900, Currency: "GBP"}.Add(money.Amount{Minor: 100, Currency: "GBP"})
	fmt.Println(sum, err)
	_, err = money.Amount{Minor: 4900, Currency: "GBP"}.Add(money.Amount{Minor: 100, Currency: "EUR"})
	fmt.Println(err)
	// Output:
	// 50.00 GBP <nil>
	// currency unknown or not the same
}
