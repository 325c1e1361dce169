package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestLogMessages: logs.md names each warning and error that the programs log, so that alerts
// can rely on their words, and none that is gone.
func TestLogMessages(t *testing.T) {
	text := readPage(t, "logs.md")
	logged := map[string]string{"election request failed": "../pkg/server/election/requests.go"} // of a level that varies
	for _, root := range []string{"../pkg", "../cmd"} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			name := e.Name()
			switch {
			case err != nil:
				return err
			case e.IsDir() && (strings.HasSuffix(name, "test") || name == "dev" || strings.HasPrefix(name, "dev-")):
				return filepath.SkipDir
			case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
				return logCalls(path, logged)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(logged) < 30 {
		t.Fatalf("%d messages: the walk misses some", len(logged))
	}
	for message, path := range logged {
		if row(text, message) == "" {
			t.Errorf("logs.md has no row for %q of %s", message, path)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]*)` \\|").FindAllStringSubmatch(text, -1) {
		if logged[m[1]] == "" {
			t.Errorf("logs.md has a row for %q, which nothing logs", m[1])
		}
	}
}

// logCalls collects the messages that a file logs as warnings or errors.
func logCalls(path string, into map[string]string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !strings.Contains(strings.ToLower(types.ExprString(method.X)), "log") || !isLog(method.Sel.Name, call.Args) {
			return true
		}
		for _, arg := range call.Args[:min(3, len(call.Args))] { // after a context and a level, or the error of logr
			if literal, ok := arg.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if message, err := strconv.Unquote(literal.Value); err == nil {
					into[message] = path
				}
				break
			}
		}
		return true
	})
	return nil
}

// isLog reports whether a call of a logger's method is a warning or an error.
func isLog(name string, args []ast.Expr) bool {
	switch name {
	case "Warn", "Error", "WarnContext", "ErrorContext":
		return true
	case "Log", "LogAttrs":
		level := ""
		if len(args) > 1 {
			level = types.ExprString(args[1])
		}
		return level == "slog.LevelWarn" || level == "slog.LevelError"
	}
	return false
}
