package reference

import (
	"errors"
	"math"

	"github.com/go-json-experiment/json"

	"github.com/paidonce/paidonce/bankclient"
)

// Renderer is the version that new operations get.
func (Adapter) Renderer() int16 { return 1 }

// Render makes the body of the call that creates a transfer.
func (Adapter) Render(renderer int16, in bankclient.Rendering) ([]byte, error) {
	if err := check(in); err != nil {
		return nil, err
	}
	switch renderer {
	case 1:
		return renderV1(in)
	default:
		return nil, errRenderer
	}
}

// bodyV1 is the body of renderer 1. Do not touch it: operations in doubt are sent again with exactly these bytes. A change
// of the body is a bodyV2.
type bodyV1 struct {
	Amount      string      `json:"amount"`
	Currency    string      `json:"currency"`
	Beneficiary beneficiary `json:"beneficiary"`
	Reference   string      `json:"reference"`
	EndToEndID  string      `json:"end_to_end_id"`
}

func renderV1(in bankclient.Rendering) ([]byte, error) {
	body, err := json.Marshal(bodyV1{
		Amount:      in.Transfer.Amount,
		Currency:    in.Transfer.Currency,
		Beneficiary: beneficiary(in.Transfer.Beneficiary),
		Reference:   in.Transfer.Reference,
		EndToEndID:  in.EndToEndID,
	})
	if err != nil { // the encoder's error would show the text
		return nil, errors.New("render transfer: text is not UTF-8")
	}
	return body, nil
}

// check refuses what could not have come from a valid job. It names the member and never its value.
func check(in bankclient.Rendering) error {
	t := in.Transfer
	switch {
	case t.Amount == "" || t.AmountMinor <= 0:
		return errors.New("render transfer: amount is missing")
	case digits(t.Amount) != t.AmountMinor:
		return errors.New("render transfer: amount and minor units disagree")
	case len(t.Currency) != 3:
		return errors.New("render transfer: currency is missing")
	case t.Beneficiary == bankclient.Beneficiary{}:
		return errors.New("render transfer: beneficiary is missing")
	case len(in.EndToEndID) != 26:
		return errors.New("render transfer: end-to-end id is missing")
	default:
		return nil
	}
}

// digits reads the digits of a decimal amount as minor units, -1 if it is anything else.
func digits(amount string) int64 {
	var n int64
	points := 0
	for i := range len(amount) {
		switch c := amount[i]; {
		case c == '.' && i > 0 && i < len(amount)-1 && points == 0:
			points++
		case c >= '0' && c <= '9' && n <= (math.MaxInt64-int64(c-'0'))/10:
			n = n*10 + int64(c-'0')
		default:
			return -1
		}
	}
	return n
}
