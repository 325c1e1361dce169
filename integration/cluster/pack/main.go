// Command pack creates an image of one program, as an archive that a container runtime imports:
// pack FILE.tar REFERENCE PROGRAM [ARGUMENT...]
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New("want FILE.tar REFERENCE PROGRAM [ARGUMENT...]")
	}
	reference, err := name.NewTag(args[1])
	if err != nil {
		return err
	}
	inside := path.Join("/", filepath.Base(args[2]))
	files, err := archive(args[2], inside)
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil })
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = append([]string{inside}, args[3:]...)
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	return tarball.WriteToFile(args[0], reference, image)
}

// archive is the file system of the image: the program.
func archive(file, inside string) ([]byte, error) {
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: inside[1:], Mode: 0o755, Size: int64(len(program)), Typeflag: tar.TypeReg}); err != nil {
		return nil, err
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	return out.Bytes(), w.Close()
}
