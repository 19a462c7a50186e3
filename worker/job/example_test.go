package job_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
)

// An upstream system makes the key once, stores it with its own record, and uses the same one for every further try.
func ExampleEncode() {
	amount, err := money.Parse("49.00", "GBP")
	if err != nil {
		fmt.Println(err)
		return
	}
	payload, err := job.Encode(job.Job{
		Key:           uuid.MustParse("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"), // job.NewKey() in life
		Source:        "wallet",
		Route:         "gbp-fps",
		DebtorAccount: "cust-4471",
		Amount:        amount,
		Beneficiary:   job.Beneficiary{Name: "A N Example", IBAN: "GB33BUKB20201555555555"},
		NotAfter:      time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC),
	})
	fmt.Println(string(payload), err)
	fmt.Println(job.Subject("gbp-fps", "wallet"))
	// Output:
	// {"v":1,"key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11","debtor_account":"cust-4471","amount":"49.00","currency":"GBP","beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"},"not_after":"2026-12-24T00:00:00Z"} <nil>
	// withdrawals.jobs.gbp-fps.wallet
}

func ExampleDecode() {
	payload := []byte(`{"v":1, "key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "debtor_account":"cust-4471",
		"amount":"49.00", "currency":"GBP", "beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"}}`)
	j, err := job.Decode("wallet", "gbp-fps", payload)
	fmt.Println(j, err)
	fmt.Println(j.Beneficiary.Name, j.Beneficiary.Name.Reveal())
	// Output:
	// job 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11 of wallet for gbp-fps: 49.00 GBP <nil>
	// [masked] A N Example
}

func ExampleDecode_fault() {
	payload := []byte(`{"v":1, "key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "amount":"49.00", "Amount":"4900.00"}`)
	_, err := job.Decode("wallet", "gbp-fps", payload)
	var fault *job.Fault
	if errors.As(err, &fault) {
		fmt.Println(fault.Reason, fault.Code, fault.Path)
	}
	fmt.Println(err)
	// Output:
	// undecodable case_variant_name /amount
	// job undecodable: case_variant_name at /amount: a name that differs from this one only by case
}

func ExampleJob_FingerprintAs() {
	j, _ := job.Decode("wallet", "gbp-fps", []byte(`{"v":1,"key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11",
		"debtor_account":"cust-4471","amount":"49.00","currency":"GBP",
		"beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"}}`))
	now, known := j.FingerprintAs(1)
	fmt.Printf("%x %v\n", now.Sum, known)
	_, known = j.FingerprintAs(2)
	fmt.Println(known) // a newer worker recorded it: leave it to that one
	// Output:
	// 908e600ac5a03ca23911201095dbeaa941c83edd7a9395326b7fd104869c722b true
	// false
}

func ExampleParseKey() {
	key, err := job.ParseKey("01939E1C-7A52-7C3E-9B6E-2F6F0B0F4A11")
	fmt.Println(key, err)
	_, err = job.ParseKey("00000000-0000-0000-0000-000000000000")
	fmt.Println(err)
	// Output:
	// 01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11 <nil>
	// key is the nil or the max UUID
}
