package enumerate

import (
	"slices"
	"testing"
)

func TestGenWalksEverySequenceOnce(t *testing.T) {
	var got []string
	for g := (&Gen{}); g.Next(); {
		if g.Choose(2) == 0 { // an uneven tree
			g.Choose(3)
		} else {
			g.Choose(1)
			g.Choose(2)
		}
		got = append(got, g.String())
	}
	if want := []string{"0.0", "0.1", "0.2", "1.0", "1.1"}; !slices.Equal(got, want) {
		t.Errorf("sequences %v, want %v", got, want)
	}
}

func TestReplayRepeatsOneSequence(t *testing.T) {
	g, err := Replay("1.2.0")
	if err != nil || !g.Next() {
		t.Fatalf("replay: %v", err)
	}
	got := []int{g.Choose(2), g.Choose(1), g.Choose(3), g.Choose(4), g.Choose(5)}
	if want := []int{1, 0, 2, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("choices %v, want %v", got, want)
	}
	if g.Next() {
		t.Error("a replay has a second run")
	}
	if _, err := Replay("1.x"); err == nil {
		t.Error("a sequence of letters was read")
	}
}

func TestGenRefusesAnotherProgramsSequence(t *testing.T) {
	g, _ := Replay("4")
	g.Next()
	defer func() {
		if recover() == nil {
			t.Error("choice 4 of 2 was given")
		}
	}()
	g.Choose(2)
}
