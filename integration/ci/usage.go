package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// idleWatch counts the seconds in which nearly all of the machine's cores idled.
type idleWatch struct {
	end    chan struct{}
	result chan float64
}

// mostlyIdle is the idle share of all cores' time from which a second counts.
const mostlyIdle = 0.9

// watchIdle starts to count. It reads /proc/stat (proc_stat(5)); without it the result is unknown.
func watchIdle() idleWatch {
	w := idleWatch{end: make(chan struct{}), result: make(chan float64, 1)}
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		seconds, idle := 0, 0
		before, known := readStat()
		for {
			select {
			case <-w.end:
				w.result <- share(idle, seconds, known)
				return
			case <-tick.C:
			}
			now, ok := readStat()
			known = known && ok
			seconds++
			if now.mostlyIdleSince(before) {
				idle++
			}
			before = now
		}
	}()
	return w
}

func share(idle, seconds int, known bool) float64 {
	if !known || seconds == 0 {
		return -1
	}
	return float64(idle) / float64(seconds)
}

// stop ends the count and returns the share; negative: unknown.
func (w idleWatch) stop() float64 {
	close(w.end)
	return <-w.result
}

// stat is the time of all cores together, in clock ticks.
type stat struct{ idle, total uint64 }

func (s stat) mostlyIdleSince(before stat) bool {
	total := s.total - before.total
	return total > 0 && float64(s.idle-before.idle) >= mostlyIdle*float64(total)
}

func readStat() (stat, bool) {
	if runtime.GOOS != "linux" {
		return stat{}, false
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return stat{}, false
	}
	return parseStat(string(text))
}

// parseStat reads the first line of /proc/stat: user nice system idle iowait irq ...
func parseStat(text string) (s stat, ok bool) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[0] != "cpu" {
		return stat{}, false
	}
	for n, field := range fields[1:min(len(fields), 9)] { // guest time is part of user time
		ticks, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return stat{}, false
		}
		s.total += ticks
		if n == 3 || n == 4 { // idle, iowait
			s.idle += ticks
		}
	}
	return s, true
}
