package enumerate

import (
	"fmt"
	"strconv"
	"strings"
)

// Gen walks all sequences of choices of a program that is run again and again: each run asks Choose at every fork, and Next moves on like
// an odometer, the last fork first. The program must be deterministic: the same answers lead to the same next question.
type Gen struct {
	path  []int // the answers of this run
	sizes []int // out of how many each was chosen
	at    int   // how many forks this run has met
	begun bool
	only  bool // replays one sequence
}

// Replay is a Gen of one sequence, as String printed it. Beyond its end every answer is 0.
func Replay(sequence string) (*Gen, error) {
	g := &Gen{only: true}
	for field := range strings.FieldsFuncSeq(sequence, func(r rune) bool { return r == '.' }) {
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("read choice sequence: %q is no choice", field)
		}
		g.path = append(g.path, n)
		g.sizes = append(g.sizes, n+1)
	}
	return g, nil
}

// Next begins the next run; false means that all were made.
func (g *Gen) Next() bool {
	if !g.begun {
		g.begun = true
		return true
	}
	if g.only {
		return false
	}
	last := g.at - 1
	for last >= 0 && g.path[last]+1 >= g.sizes[last] {
		last--
	}
	if last < 0 {
		return false
	}
	g.path, g.sizes = g.path[:last+1], g.sizes[:last+1]
	g.path[last]++
	g.at = 0
	return true
}

// Choose answers one of 0..n-1.
func (g *Gen) Choose(n int) int {
	if n < 1 {
		panic("a fork needs at least one way")
	}
	if n == 1 {
		return 0
	}
	if g.at == len(g.path) {
		g.path, g.sizes = append(g.path, 0), append(g.sizes, n)
	}
	if g.path[g.at] >= n {
		panic(fmt.Sprintf("choice %d of %s is one of %d: the program under enumeration is not deterministic, or the sequence is another's", g.at, g, n))
	}
	g.sizes[g.at] = n
	g.at++
	return g.path[g.at-1]
}

// String is the sequence of this run, for Replay.
func (g *Gen) String() string {
	var b strings.Builder
	for i, n := range g.path[:g.at] {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}
