import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectOutputStream;
import java.util.HexFormat;

/**
 * Writes log entries as a Java program does. Each argument is one list of fields, `type:value` parted by commas, text
 * as hexadecimal UTF-16; each line of the output is a stream, hexadecimal.
 */
public final class JavaEntries {
    public static void main(String[] lines) throws IOException {
        for (String line : lines) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
                for (String field : line.split(",")) {
                    write(out, field.charAt(0), field.substring(2));
                }
            }
            System.out.println(HexFormat.of().formatHex(bytes.toByteArray()));
        }
    }

    private static void write(ObjectOutputStream out, char type, String value) throws IOException {
        switch (type) {
            case 'b' -> out.writeByte(Integer.parseInt(value));
            case 'i' -> out.writeInt(Integer.parseInt(value));
            case 'l' -> out.writeLong(Long.parseLong(value));
            case 'z' -> out.writeBoolean(Boolean.parseBoolean(value));
            case 's' -> out.writeUTF(text(value));
            default -> throw new IllegalArgumentException("type " + type);
        }
    }

    private static String text(String hex) {
        byte[] units = HexFormat.of().parseHex(hex);
        StringBuilder text = new StringBuilder(units.length / 2);
        for (int at = 0; at < units.length; at += 2) {
            text.append((char) ((units[at] & 0xff) << 8 | units[at + 1] & 0xff));
        }
        return text.toString();
    }
}
