package files

import (
	"fmt"
	"os"
)

// SetAside moves the set that is in place into a folder of the directory, with all that
// is known of it, so that the directory has the empty set without a hash. Other files
// stay. It makes the folder, which only the owner can read. After an error the same is to
// be tried again: what was moved by then is found in that attempt's folder.
func (d *Dir) SetAside(folder string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	k, err := d.open()
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer k.close()
	set, err := k.recover()
	if err == nil {
		err = k.setAside(folder, set)
	}
	if err != nil {
		return fmt.Errorf("set the files received in %s aside: %w", d.config.Path, err)
	}
	d.set = manifest{}
	clear(d.cached)
	return nil
}

// setAside moves our own folder last: until then it says which files are of the set.
func (k disk) setAside(folder string, set manifest) error {
	if err := k.mkdir(folder); err != nil && !os.IsExist(err) {
		return err
	}
	names := append(append([]string(nil), set.Names...), hashFile, homeDir)
	for _, name := range names {
		if !k.exists(name) {
			continue
		}
		if err := k.rename(name, folder+"/"+name); err != nil {
			return err
		}
	}
	if err := k.sync(folder); err != nil {
		return err
	}
	return k.sync(".")
}
