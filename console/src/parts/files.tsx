/** Attachments. Common image types are displayed; other types can only be downloaded. */
import { useEffect, useState } from "preact/hooks";
import { bytes, get } from "../api.ts";
import { size } from "../format.ts";
import type { Known } from "../session-model.ts";
import type { Attachment, Page } from "../shapes.ts";
import { Empty, Wrong } from "./notice.tsx";
import { Text } from "./text.tsx";
import { useRead } from "../hooks.ts";
import { plain } from "../visible.ts";

const SHOWN = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

interface Attached extends Attachment {
  bytes: number;
}

export function Files({ known }: { known: Known }) {
  const id = known.session?.id;
  const read = useRead((stop) => (id ? get<Page<Attached>>(`/v1/sessions/${id}/attachments`, {}, stop) : Promise.resolve({ items: [] })), [id, known.session?.last]);
  if (!id || !read.value) return <Wrong error={read.error} />;
  if (read.value.items.length === 0) return <Empty title="No files">Attached files and results that are too large to display are listed here.</Empty>;
  return (
    <ul class="files">
      {read.value.items.map((file) => (
        <li>
          <Picture attachment={file} session={id} />
          <span class="quiet">{file.media_type} · {size(file.bytes)}</span>
        </li>
      ))}
    </ul>
  );
}

/** An attachment with a download link, and a preview if it is an image. */
export function Picture({ attachment, session }: { attachment: Attachment; session: string }) {
  const [address, setAddress] = useState<string>();
  const place = `/v1/sessions/${session}/attachments/${attachment.id}`;
  const name = attachment.name ?? attachment.id;
  useEffect(() => {
    if (!SHOWN.has(attachment.media_type)) return;
    let made: string | undefined;
    let gone = false;
    bytes(place).then(
      (blob) => !gone && setAddress((made = URL.createObjectURL(new Blob([blob], { type: attachment.media_type })))),
      () => {},
    );
    return () => {
      gone = true;
      if (made) URL.revokeObjectURL(made);
    };
  }, [place]);
  const save = async () => {
    const link = document.createElement("a");
    [link.href, link.download] = [URL.createObjectURL(await bytes(place)), name];
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return (
    <figure class="picture">
      {address && <img src={address} alt={plain(name)} />}
      <figcaption><button type="button" class="plain" onClick={() => void save()}>Save <Text of={name} /></button></figcaption>
    </figure>
  );
}
