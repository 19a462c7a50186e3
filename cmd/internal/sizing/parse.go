package sizing

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Words are the names that Parse knows, with what they mean.
func Words() [][2]string {
	return [][2]string{
		{"rate", "operations per second at the peak"},
		{"bank_latency", "mean time of one call, as 400ms"},
		{"workers", "processes (default 1)"},
		{"share", "mean over peak, as 0.3 (default 1)"},
		{"payload_days", "days until payloads are purged (default 90)"},
		{"payload_size", "bytes of a job (default 400)"},
		{"keys", "v7 or v4 (default v7)"},
	}
}

// Parse reads words such as rate=3000 and bank_latency=400ms; several may stand in one.
func Parse(words []string) (Demand, error) {
	var d Demand
	for _, word := range strings.Fields(strings.Join(words, " ")) {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return d, fmt.Errorf("%q is not name=value", word)
		}
		if err := d.set(name, value); err != nil {
			return d, fmt.Errorf("%s: %w", word, err)
		}
	}
	if d.Rate == 0 || d.BankLatency == 0 {
		return d, fmt.Errorf("rate and bank_latency are needed, as rate=3000 bank_latency=400ms")
	}
	return d.withDefaults(), nil
}

func (d *Demand) set(name, value string) error {
	switch name {
	case "rate":
		return number(&d.Rate, value, 1e6)
	case "share":
		return number(&d.Share, value, 1)
	case "bank_latency":
		at, err := time.ParseDuration(value)
		if err != nil || at <= 0 || at > 10*time.Minute {
			return fmt.Errorf("takes a time such as 400ms")
		}
		d.BankLatency = at
		return nil
	case "workers":
		return whole(&d.Workers, value, 10_000)
	case "payload_days":
		return whole(&d.PayloadDays, value, 36_500)
	case "payload_size":
		return whole(&d.PayloadSize, value, 64<<10)
	case "keys":
		d.RandomKeys = value == "v4"
		if value != "v4" && value != "v7" {
			return fmt.Errorf("takes v7 or v4")
		}
		return nil
	}
	var names []string
	for _, known := range Words() {
		names = append(names, known[0])
	}
	return fmt.Errorf("there is %s", strings.Join(names, ", "))
}

func number(into *float64, value string, most float64) error {
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || !(n > 0 && n <= most) {
		return fmt.Errorf("takes a number above 0, at most %v", most)
	}
	*into = n
	return nil
}

func whole(into *int, value string, most int) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		return fmt.Errorf("takes a whole number from 1 to %d", most)
	}
	*into = n
	return nil
}
