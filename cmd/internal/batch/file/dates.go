package file

import "time"

// dates turns dates without a time into times. not_before is the begin of the day, not_after its end, in the place of the options. Most rows of a
// file have the same date, so the last one is kept.
type dates struct {
	location            *time.Location
	lastFrom, lastUntil [2]string
}

func (d *dates) from(text string) string {
	if len(text) != len(time.DateOnly) {
		return text
	}
	if d.lastFrom[0] != text {
		d.lastFrom = [2]string{text, d.day(text, 0)}
	}
	return d.lastFrom[1]
}

func (d *dates) until(text string) string {
	if len(text) != len(time.DateOnly) {
		return text
	}
	if d.lastUntil[0] != text {
		d.lastUntil = [2]string{text, d.day(text, 1)}
	}
	return d.lastUntil[1]
}

// day gives the text back if it is no date: then job refuses it.
func (d *dates) day(text string, later int) string {
	day, err := time.ParseInLocation(time.DateOnly, text, d.location)
	if err != nil {
		return text
	}
	return day.AddDate(0, 0, later).UTC().Format(time.RFC3339)
}
