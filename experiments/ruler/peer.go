// Drives quamina: commands are lines of JSON, and so are the answers.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"

	"quamina.net/go/quamina/v2"
)

type command struct {
	Rules  string
	Limit  float64
	Events string
	First  int
	Last   int
}

// seconds of the process's CPU.
func seconds() float64 {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func memory() uint64 {
	debug.FreeOSMemory()
	var found runtime.MemStats
	runtime.ReadMemStats(&found)
	return found.HeapAlloc
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func lines(name string) [][]byte {
	content, err := os.ReadFile(name)
	check(err)
	return bytes.Split(bytes.TrimRight(content, "\n"), []byte("\n"))
}

func answer(value any) {
	text, err := json.Marshal(value)
	check(err)
	fmt.Println(string(text))
}

func main() {
	matcher, err := quamina.New()
	check(err)
	var events [][]byte
	added := 0
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		var given command
		check(json.Unmarshal(commands.Bytes(), &given))
		switch {
		case given.Rules != "":
			patterns := lines(given.Rules)
			matcher, err = quamina.New()
			check(err)
			before, begun := memory(), seconds()
			for added = 0; added < len(patterns) && seconds()-begun < given.Limit; added++ {
				check(matcher.AddPattern(strconv.Itoa(added), string(patterns[added])))
			}
			taken := seconds() - begun
			patterns = nil
			answer(map[string]any{"seconds": taken, "rules": added, "bytes": int64(memory()) - int64(before)})
		case given.Events != "":
			events = lines(given.Events)
			answer(map[string]any{"events": len(events)})
		default:
			counts := make([]int, added)
			begun := seconds()
			for _, event := range events[given.First:given.Last] {
				found, err := matcher.MatchesForEvent(event)
				check(err)
				for _, rule := range found {
					number, _ := strconv.Atoi(rule.(string))
					counts[number]++
				}
			}
			taken := seconds() - begun
			some := map[string]int{}
			for rule, count := range counts {
				if count > 0 {
					some[strconv.Itoa(rule)] = count
				}
			}
			answer(map[string]any{"seconds": taken, "counts": some})
		}
	}
}
