package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// assign writes text into the field behind target. Its errors never echo the text: it may be secret.
func assign(target any, text string) error {
	switch field := target.(type) {
	case *string:
		*field = text
	case *URL:
		*field = URL(text)
	case *int:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return errors.New("is not a whole number")
		}
		*field = int(n)
	case *int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return errors.New("is not a whole number")
		}
		*field = n
	case *bool:
		if text != "true" && text != "false" {
			return errors.New("is neither true nor false")
		}
		*field = text == "true"
	case *time.Duration:
		d, err := parseDuration(text)
		if err != nil {
			return err
		}
		*field = d
	case *[]string, *[]time.Duration:
		return assignList(target, splitList(text))
	default:
		panic(fmt.Sprintf("a setting has a field of type %T, which no text can be assigned to", target))
	}
	return nil
}

// assignList writes items into the list behind target.
func assignList(target any, items []string) error {
	switch field := target.(type) {
	case *[]string:
		*field = items
	case *[]time.Duration:
		list := make([]time.Duration, 0, len(items))
		for i, item := range items {
			d, err := parseDuration(item)
			if err != nil {
				return fmt.Errorf("item %d %w", i+1, err)
			}
			list = append(list, d)
		}
		*field = list
	default:
		return errors.New("takes one value, not a list")
	}
	return nil
}

func isList(target any) bool {
	switch target.(type) {
	case *[]string, *[]time.Duration:
		return true
	}
	return false
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("is not a duration such as 500ms, 20s, 2m or 1h")
	}
	return d, nil
}

// splitList reads "a, b" and "[a, b]" as they stand in a flag, a variable or a default.
func splitList(text string) []string {
	text = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "["), "]")
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
