package config

import (
	"fmt"
	"strings"
)

// Problem is one thing wrong with the settings. It never echoes the value of a setting that may be secret.
type Problem struct {
	Place string `json:"place"` // file:line:column, "flag", "environment PAIDONCE_X" or "default"
	Path  string `json:"path"`
	Text  string `json:"text"`
}

// String gives the problem on one line.
func (p Problem) String() string {
	var b strings.Builder
	for _, part := range []string{p.Place, p.Path} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	b.WriteString(p.Text)
	return b.String()
}

// Problems is everything wrong with the settings at once.
type Problems []Problem

// Error lists every problem, one per line.
func (ps Problems) Error() string {
	lines := make([]string, 0, len(ps)+1)
	noun := "problems"
	if len(ps) == 1 {
		noun = "problem"
	}
	lines = append(lines, fmt.Sprintf("the configuration has %d %s", len(ps), noun))
	for _, p := range ps {
		lines = append(lines, "  "+p.String())
	}
	return strings.Join(lines, "\n")
}

// err gives nil for no problems: a nil Problems in an error is not nil.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// nearest returns the candidate that was probably meant, or "".
func nearest(word string, candidates []string) string {
	best, bestDistance := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the edit distance of two short words; a swap of neighbours counts as one edit.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
