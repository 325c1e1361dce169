package stack

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// logWriter writes lines to a component's own file and to the shared output.
type logWriter struct {
	shared *sync.Mutex
	out    io.Writer
	file   *os.File
}

func newLogWriter(shared *sync.Mutex, out io.Writer, path string) (*logWriter, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log file: %w", err)
	}
	return &logWriter{shared: shared, out: out, file: f}, nil
}

// Write writes one line. Errors of the log file, such as a full disk, are dropped, since they must
// not stop the stack.
func (w *logWriter) Write(line []byte) (int, error) {
	w.shared.Lock()
	defer w.shared.Unlock()
	_, _ = w.file.Write(line)
	return w.out.Write(line)
}

func lastLines(b []byte, n int) string {
	at := len(b)
	for at > 0 {
		if b[at-1] == '\n' && at != len(b) {
			if n--; n == 0 {
				break
			}
		}
		at--
	}
	return string(b[at:])
}
